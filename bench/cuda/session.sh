#!/usr/bin/env bash
# Everything that a machine with a GPU has to say of a build: session.sh BUILD_DIR OUT_DIR [STEP or GROUP...]
#
# BUILD_DIR holds hadal, libhadal_cuda.so, conformance_cuda, dense_check, fp8_check, attention_check and gap_time (stripped is fine: pack.sh collects
# them); the rest is this checkout. Each step has its own time limit and writes OUT_DIR/STEP.log; a step that fails does not stop
# those behind it. One line a step at the end of it and all of them once more at the end. Exit 0: all passed.
#
# Groups: checks (bits and answers), speed (times; steps with and without overlap), memory (the memory checkers). Default: all, in order.
# shellcheck disable=SC2317  # steps are called by name
set -uo pipefail

if [ $# -lt 2 ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
build=$(realpath "$1") || exit 2
mkdir -p "$2" && out=$(realpath "$2") || exit 2
shift 2
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
python=${HADAL_PYTHON:-python3}
demo=$root/models/demo
released=$out/released
summary=$out/summary.txt
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # libsimdjson, where it was carried
failed=0

# The path of a program of the build, wherever the build has put it.
program() {
  local place
  for place in "$build/$1" "$build/bench/cuda/$1" "$build/tests/$1"; do
    if [ -x "$place" ]; then
      echo "$place"
      return
    fi
  done
  echo "$1 is not in $build; build it with tools/build.sh cuda $1" >&2
  return 1
}

tool() {
  local path
  path=$(program "$1") || return 1
  shift
  "$path" "$@"
}

# hadal with a backend of its own, for tests that know nothing of backends: with_backend NAME writes OUT/hadal-NAME.
with_backend() {
  local wrapper=$out/hadal-${1//:/-}
  cat >"$wrapper" <<END
#!/bin/sh
exec "$build/hadal" "\$@" --backend $1
END
  chmod +x "$wrapper"
  echo "$wrapper"
}

# ---- steps: one function each, judged by its exit status; its last line goes into the summary ----

step_device() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader
}
step_dense() {
  tool dense_check check
}
step_attention() {
  tool attention_check check
}
step_conformance() {
  tool conformance_cuda
}
step_conformance_serial() {
  tool conformance_cuda --backend cuda:serial
}
# Products in E4M3 against f64 and the parity kernels, the ops with them, and how far they move a model's logits.
step_fp8() {
  tool fp8_check check
}
step_conformance_fp8() {
  tool conformance_cuda --backend cuda:fp8
}
step_drift() {
  "$python" "$here/drift.py" "$build/hadal" "$demo"
}
step_golden() {
  "$python" "$root/tests/golden/model/golden.py" prepare "$out/golden" || return 1
  "$python" "$root/tests/golden/model/golden.py" check "$(with_backend cuda)" "$out/golden"
}
step_selfcheck() {
  "$build/hadal" selfcheck --model "$demo" --backend cuda
}
step_selfcheck_serial() {
  "$build/hadal" selfcheck --model "$demo" --backend cuda:serial
}
# Ids of the demo model through run, generate, score and serve against the CPU's, and without overlap the same bits as with it.
step_answers() {
  "$python" "$here/answers.py" "$build/hadal" "$demo"
}
# 64 clients, seeds, some that leave in the middle.
step_serve_load() {
  "$python" "$here/serve_load.py" "$build/hadal"
}
step_limits() {
  "$python" "$root/tests/recipe/limits_test.py" "$(with_backend cuda)"
}
# A model that does not fit: the plan is printed before anything is loaded.
step_too_large() {
  local text status
  text=$("$build/hadal" bench step --backend cuda --model "$released" --layers 39 --prompt 64 --decode 4 2>&1)
  status=$?
  echo "$text"
  [ "$status" = 1 ] || { echo "exit $status, not 1"; return 1; }
  if ! grep -q 'does not fit' <<<"$text" || ! grep -q 'planned: weights' <<<"$text"; then
    echo "no plan in the text"
    return 1
  fi
  echo "refused with its plan"
}
step_ops() {
  "$build/hadal" bench ops --backend cuda --json >"$out/ops.jsonl" || return 1
  "$python" "$here/table.py" "$out/ops.jsonl" >"$out/ops.md" || return 1
  wc -l <"$out/ops.jsonl" | sed 's/$/ lines, the table is ops.md/'
}
bench_step() {
  "$build/hadal" bench step --backend "$1" --model "$released" --layers 4 --batch 64 --decode 40 --prompt 2048 \
    --prefill-chunk 2048 --json | tee "$out/step-${1//:/-}.jsonl"
  return "${PIPESTATUS[0]}"
}
step_step() {
  bench_step cuda
}
# The same bits with one kernel at a time, and what overlap gives.
step_step_serial() {
  bench_step cuda:serial || return 1
  "$python" "$here/compare_steps.py" "$out/step-cuda-serial.jsonl" "$out/step-cuda.jsonl"
}
step_step_fp8() {
  bench_step cuda:fp8
}
# Time between kernels of a decode step: its kernels' own times, from the profiler, beside what the step takes without it.
step_gaps() {
  command -v ncu >/dev/null || { echo "no ncu here"; return 1; }
  # All but those that pack the weights, which are thousands.
  local kernels="rope|embed|boundary|thin|wide|add_slices|tile_rows|dispatch|swiglu|combine|f32_product|latent|group|entry|query"
  kernels+="|score|select|attend|route|gather|apply|final_norm|commit"
  ncu --graph-profiling node --clock-control none --cache-control none --metrics gpu__time_duration.sum --csv --page raw \
    --kernel-name "regex:$kernels" \
    "$build/hadal" bench step --backend cuda --model "$released" --layers 4 --batch 1 --decode 2 --prompt 64 --json \
    >"$out/gaps.csv" || { tail -n 5 "$out/gaps.csv"; return 1; }
  tool gap_time >"$out/gap.jsonl" || return 1
  "$python" "$here/gaps.py" "$out/gaps.csv" "$out/step-cuda.jsonl" "$out/gap.jsonl"
}
# Other people's kernels at our shapes, where PYTHONPATH has them (peers.py).
step_peers() {
  "$python" "$here/peers.py" >"$out/peers.jsonl" || return 1
  [ ! -s "$out/ops.jsonl" ] || "$python" "$here/table.py" "$out/ops.jsonl" "$out/peers.jsonl" >"$out/ops.md" || return 1
  wc -l <"$out/peers.jsonl" | sed 's/$/ figures of peers/'
}
step_dense_time() {
  tool dense_check time
}
step_fp8_time() {
  tool fp8_check time
}
step_attention_time() {
  tool attention_check attend && tool attention_check index
}
sanitize() {
  local check=$1 path
  path=$(program "$2") || return 1
  shift 2
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 1; }
  compute-sanitizer --tool "$check" --error-exitcode 99 --print-limit 20 "$path" "$@"
}
step_memcheck_dense() { sanitize memcheck dense_check small; }
step_memcheck_fp8() { sanitize memcheck fp8_check small; }
step_memcheck_attention() { sanitize memcheck attention_check small; }
step_memcheck_conformance() { sanitize memcheck conformance_cuda --small; }
step_memcheck_serial() { sanitize memcheck conformance_cuda --small --backend cuda:serial; }
step_racecheck_dense() { sanitize racecheck dense_check small; }
step_racecheck_fp8() { sanitize racecheck fp8_check small; }
step_racecheck_attention() { sanitize racecheck attention_check small; }
step_racecheck_conformance() { sanitize racecheck conformance_cuda --small; }
step_synccheck_conformance() { sanitize synccheck conformance_cuda --small; }
step_initcheck_conformance() { sanitize initcheck conformance_cuda --small; }

# Seconds that each may take.
declare -A limit=(
  [device]=20 [dense]=150 [attention]=120 [conformance]=150 [conformance_serial]=150 [golden]=240 [selfcheck]=90
  [selfcheck_serial]=90 [answers]=240 [limits]=240 [serve_load]=120 [too_large]=60
  [fp8]=60 [conformance_fp8]=150 [drift]=240 [step_fp8]=240 [fp8_time]=60 [memcheck_fp8]=120 [racecheck_fp8]=150
  [ops]=200 [step]=240 [step_serial]=240 [gaps]=200 [dense_time]=120 [attention_time]=60 [peers]=200
  [memcheck_dense]=120 [memcheck_attention]=120 [memcheck_conformance]=200 [memcheck_serial]=200 [racecheck_dense]=150
  [racecheck_attention]=150 [racecheck_conformance]=240 [synccheck_conformance]=150 [initcheck_conformance]=150)
group() {
  case $1 in
    checks)
      echo "dense attention conformance selfcheck golden answers serve_load limits too_large conformance_serial selfcheck_serial"
      echo "fp8 conformance_fp8 drift"
      ;;
    speed) echo "step step_serial step_fp8 ops gaps dense_time fp8_time attention_time peers" ;;
    memory)
      echo "memcheck_dense memcheck_attention memcheck_conformance racecheck_dense racecheck_attention racecheck_conformance"
      echo "memcheck_fp8 racecheck_fp8 memcheck_serial synccheck_conformance initcheck_conformance"
      ;;
    *) echo "$1" ;;
  esac
}

run() {
  local name=$1 start status word last
  start=$(date +%s)
  # A shell of its own, so that the limit ends a step with all that it has started.
  timeout --kill-after=10 "${limit[$name]}" "$BASH" "$here/session.sh" "$build" "$out" --one "$name" >"$out/$name.log" 2>&1 </dev/null
  status=$?
  case $status in
    0) word=passed ;;
    124 | 137) word="timed out" ;;
    *) word=failed ;;
  esac
  [ "$status" = 0 ] || failed=1
  last=$(grep -v '^[[:space:]]*$' "$out/$name.log" | tail -n 1 | cut -c1-150)
  printf '%-9s %-24s %4d s  %s\n' "$word" "$name" "$(($(date +%s) - start))" "$last" | tee -a "$summary"
}

if [ "${1:-}" = --one ]; then
  "step_$2"
  exit
fi
mkdir -p "$released"
: >"$summary"
cp "$root/src/compute/weights/testdata/released_config.json" "$released/config.json"
wanted=("$@")
[ $# -gt 0 ] || wanted=(device checks speed memory)
for name in "${wanted[@]}"; do
  for step in $(group "$name"); do
    if [ -z "${limit[$step]:-}" ]; then
      echo "no step or group $step; steps: ${!limit[*]}; groups: checks speed memory" >&2
      exit 2
    fi
    run "$step"
  done
done
echo
cat "$summary"
exit $failed
