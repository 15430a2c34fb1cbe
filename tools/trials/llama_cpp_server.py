#!/usr/bin/env python3
"""llama.cpp's HTTP server as a program, from the wheel that has it prebuilt: for trials where there is no llama-server.

  llama_cpp_server.py --model M.gguf --port 8080 --cache-type-v q8_0 --flash-attn off

xllamacpp is llama.cpp's server as a Python module. The flags here are llama-server's own, a handful of them with its
names and values, and the log is its own too, so that a trial file for llama-server needs only another command. Ends on
SIGTERM.
"""

import argparse
import signal
import sys

try:
    import xllamacpp
except ImportError as error:
    sys.exit(f"llama_cpp_server.py: {error}; pip install xllamacpp==2026.10.11549")

FLASH_ATTENTION = {
    "on": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "auto": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
}
# What llama-server takes for a cache.
CACHE_TYPES = {
    name: getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}")
    for name in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
}
# Flag: the member of xllamacpp's parameters that it sets. What is not given stays as llama.cpp has it.
NUMBERS = {
    "--port": "port",
    "--ctx-size": "n_ctx",
    "--batch-size": "n_batch",
    "--ubatch-size": "n_ubatch",
    "--parallel": "n_parallel",
    "--gpu-layers": "n_gpu_layers",
    "--verbosity": "verbosity",
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", help="what requests name the model")
    parser.add_argument("--host", default="127.0.0.1")
    for flag, member in NUMBERS.items():
        parser.add_argument(flag, type=int, dest=member, metavar="N")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--cache-type-k", choices=CACHE_TYPES)
    parser.add_argument("--cache-type-v", choices=CACHE_TYPES)
    parser.add_argument("--flash-attn", choices=FLASH_ATTENTION)
    parser.add_argument("--no-warmup", action="store_true")
    return parser.parse_args()


def parameters(given):
    result = xllamacpp.CommonParams()
    result.model.path = given.model
    result.hostnames = [given.host]
    result.port = 8080
    for member in NUMBERS.values():
        if getattr(given, member) is not None:
            setattr(result, member, getattr(given, member))
    if given.alias:
        result.model_alias = {given.alias}
    if given.threads is not None:
        result.cpuparams.n_threads = given.threads
        result.cpuparams_batch.n_threads = given.threads  # llama-server does the same without --threads-batch
    if given.cache_type_k:
        result.cache_type_k = CACHE_TYPES[given.cache_type_k]
    if given.cache_type_v:
        result.cache_type_v = CACHE_TYPES[given.cache_type_v]
    if given.flash_attn:
        result.flash_attn_type = FLASH_ATTENTION[given.flash_attn]
    result.warmup = not given.no_warmup
    return result


def main():
    given = parameters(arguments())
    # Blocked before there are threads of the server, which inherit it: then sigwait() gets it, whenever it comes.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        server = xllamacpp.Server(given)
    except RuntimeError as error:
        # The log above has the reason; this is only that there is no server.
        sys.exit(f"llama_cpp_server.py: {error}")
    signal.sigwait(ends)
    del server  # ends its threads and closes its port


if __name__ == "__main__":
    main()
