"""A `reckoner serve` of its own for a test: started, asked, stopped. Standard library only."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "pocket"


def program():
    return os.environ.get("RECKONER", str(ROOT / "build" / "release" / "reckoner"))


class Server:
    """Running from the first line of its stdout, its address, until stop() or kill()."""

    def __init__(self, *options, key="", port=0, wait=60):
        environment = dict(os.environ)
        environment.pop("RECKONER_API_KEY", None)
        if key:
            environment["RECKONER_API_KEY"] = key
        self.key = key
        command = [program(), "serve", str(MODEL), "--port", str(port), *options]
        start = time.monotonic()
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.log = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        watchdog = threading.Timer(wait, self.process.kill)
        watchdog.start()
        self.url = self.process.stdout.readline().strip()
        watchdog.cancel()
        if not self.url.startswith("http"):
            self.process.wait()
            self._reader.join(5)
            raise RuntimeError(f"{' '.join(command)} printed no address: {self.url!r}\n{''.join(self.log)}")
        self.port = int(self.url.rsplit(":", 1)[1])
        self.seconds_to_address = time.monotonic() - start

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def ask(self, path, body=None, method=None):
        """Status and text of one request, whatever the status."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if self.key:
            request.add_header("Authorization", "Bearer " + self.key)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def info(self):
        return json.loads(self.ask("/server_info")[1])

    def metrics(self):
        return metric_sums(self.ask("/metrics")[1])

    def wait_until_idle(self, seconds=20):
        """True as soon as nothing runs and nothing waits."""
        return wait_for(lambda: self.info()["running"] == 0 and self.info()["waiting"] == 0, seconds)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def stop(self, seconds=60):
        """Ends it as an operator does; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        self.process.kill()
        self.process.wait()


def wait_for(condition, seconds=20, step=0.02):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(step)
    return bool(condition())


def metric_sums(text):
    """Name -> the sum over its labels, of Prometheus' text."""
    sums = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, value = line.rsplit(" ", 1)
        name = name.split("{", 1)[0]
        sums[name] = sums.get(name, 0.0) + float(value)
    return sums
