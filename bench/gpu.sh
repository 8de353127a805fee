#!/usr/bin/env bash
# Every figure of speed that needs a GPU. Run it from the project's root; what is printed also goes to runs/bench.
#     bench/gpu.sh                           # one GPU: engine, step, mlpo, rollout, evaluation
#     bench/gpu.sh processes vllm            # two GPUs of one host, vLLM for the second
set -uo pipefail
python=${PYTHON:-python}
recipe=recipes/h200/scaling.yaml
mkdir -p runs/bench

told() { # NAME COMMAND…
    local name=$1
    shift
    echo "== $name: $*"
    "$@" 2>&1 | tee "runs/bench/$name.txt"
}

engine() { told engine "$python" bench/engine.py --device cuda --model smollm2 --rows 512 --tokens 128 --at-once 128 256 512; }
step() { told step "$python" bench/step_vs_trl.py; }
mlpo() { told mlpo "$python" bench/mlpo_step.py --model smollm2 --steps 8 --tasks 16 --group 16 --micro 64; }
rollout() { told rollout "$python" bench/rollout.py; }
evaluation() { # several processes on one GPU
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} told evaluation "$python" bench/evaluation.py $recipe runs/evaluation --counts 1 2 4 8
}
processes() { told processes "$python" bench/processes.py $recipe runs/scaling --counts 1 2; }
vllm() { # where the trainee speaks: in process, from a server on its own GPU, from one on the other
    told vllm "$python" bench/processes.py $recipe runs/placement --counts 1 \
        --or team.collaborator.engine=vllm "team.collaborator.vllm={memory: 0.4}" \
        --or team.collaborator.engine=vllm "team.collaborator.vllm={gpus: [1], memory: 0.8}"
}

parts="engine step mlpo rollout evaluation processes vllm"
[[ $# -gt 0 ]] || set -- engine step mlpo rollout evaluation
for part; do
    [[ " $parts " == *" $part "* ]] || { echo "no part $part; there are: $parts" >&2; exit 2; }
    $part
done
