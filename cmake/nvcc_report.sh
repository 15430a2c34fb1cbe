#!/usr/bin/env bash
# nvcc_report.sh REPORT COMMAND...: runs the compiler, keeps what ptxas says about every kernel in REPORT, and shows the rest.
set -u
report=$1
shift
"$@" >"$report.new" 2>&1
status=$?
grep -vE "^(ptxas info|[[:space:]]+[0-9]+ bytes stack frame|Compiling entry)" "$report.new" >&2
if [ $status -eq 0 ]; then mv "$report.new" "$report"; fi
exit $status
