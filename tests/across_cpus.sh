#!/usr/bin/env bash
# Run the tests as other CPUs would: with other BLAS kernels, without NumPy's vector code, with numba's code for any x86-64 CPU.
# Usage: tests/across_cpus.sh [LOG_FOLDER], in an environment in which the tests pass. It takes about an hour on two cores.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=${1:-$(mktemp -d)}
mkdir -p "$logs"
echo "logs: $logs"
unset OPENBLAS_CORETYPE NPY_DISABLE_CPU_FEATURES NUMBA_CPU_NAME

rows=()
status=0
run() { # setting (NAME=VALUE, or "unset"), set of tests
  local setting=$1 tests=$2 marks workers start=$SECONDS log result
  case $tests in
    default) marks="not slow and not cluster" workers=auto ;;
    cluster) marks="cluster and not slow" workers=0 ;;
    slow) marks="slow and not cluster" workers=auto ;;
    *) echo "unknown set of tests: $tests" >&2; exit 2 ;;
  esac
  log="$logs/${setting%%=*}-$(tr -c 'A-Za-z0-9\n' _ <<<"${setting#*=}" | cut -c 1-40)-$tests.log"
  if [ "$setting" = unset ]; then
    python -m pytest -q -m "$marks" -n $workers >"$log" 2>&1
  else
    env "$setting" python -m pytest -q -m "$marks" -n $workers >"$log" 2>&1
  fi
  [ $? = 0 ] && result=passed || { result=FAILED; status=1; }
  rows+=("$(printf '%-40s %-8s %-7s %5d s  %s' "${setting:0:40}" "$tests" "$result" $((SECONDS - start)) "$(tail -n 1 "$log")")")
  echo "${rows[-1]}"
}

# A kernel set, and what the CPU must have for it.
for kernels in Haswell:avx2 SkylakeX:avx512vl Zen:avx2 Prescott:pni; do
  if grep -qw "${kernels#*:}" /proc/cpuinfo; then sets+=("OPENBLAS_CORETYPE=${kernels%:*}"); else
    rows+=("OPENBLAS_CORETYPE=${kernels%:*}: not run, this CPU has no ${kernels#*:}")
  fi
done
features=$(python -c "
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(' '.join(name for name in __cpu_dispatch__ if __cpu_features__[name]))")
for setting in unset "${sets[@]}" "NPY_DISABLE_CPU_FEATURES=$features" NUMBA_CPU_NAME=generic; do
  run "$setting" default
done
for setting in unset OPENBLAS_CORETYPE=Prescott NUMBA_CPU_NAME=generic; do
  run "$setting" slow
  run "$setting" cluster
done
printf '\n%s\n' "${rows[@]}"
exit $status
