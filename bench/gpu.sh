#!/usr/bin/env bash
# Every figure of speed that needs a GPU. Run it from the project's root; what is printed also goes to runs/bench.
#     bench/gpu.sh                           # one GPU: engine, step, mlpo, rollout, evaluation, sharing
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

engine() {
    told engine "$python" bench/engine.py --device cuda --model smollm2 --rows 512 --tokens 128 --at-once 128 256 512
    told kernels "$python" bench/decode_kernels.py --model smollm2 --rows 192 512
    told attention "$python" bench/attention.py
}
step() { # vLLM, where it is installed, in a process of its own: beside other arms it has ended it
    local setting
    for setting in hint solo; do
        told "step-$setting" "$python" bench/step_vs_trl.py --settings $setting --arms ours generate batching
        "$python" -c "import vllm" 2>/dev/null &&
            VLLM_ENABLE_V1_MULTIPROCESSING=0 told "step-$setting-vllm" "$python" bench/step_vs_trl.py --settings $setting --arms vllm
    done
}
mlpo() { told mlpo "$python" bench/mlpo_step.py --model smollm2 --steps 8 --tasks 16 --group 16 --micro 64; }
rollout() { told rollout "$python" bench/rollout.py; }
evaluation() { # several processes on one GPU: each takes its shares of what those before it left free
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} told evaluation "$python" bench/evaluation.py $recipe runs/evaluation --counts 1 2 4 8 \
        --set team.collaborator.memory=0.1 --set team.actor.memory=0.1 --set team.voter.memory=0.1
}
sharing() { # in turns, then kernels of several at once
    told sharing "$python" bench/sharing.py
    command -v nvidia-cuda-mps-control >/dev/null || return
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    nvidia-cuda-mps-control -d && told sharing-mps "$python" bench/sharing.py
    echo quit | nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
processes() { told processes "$python" bench/processes.py $recipe runs/scaling --counts 1 2; }
vllm() { # who is served, from the trainee's GPU or the other one: the trainee, the actor; beside both in process on one GPU
    local who place graphs='{"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}' served=()
    for who in collaborator actor; do
        for place in "memory: 0.4" "gpus: [1], memory: 0.8"; do
            served+=(--or "team.$who.engine=vllm" "team.$who.vllm={$place, args: [--compilation-config, '$graphs']}")
        done
    done
    told vllm "$python" bench/processes.py $recipe runs/placement --counts 1 "${served[@]}"
}

parts="engine step mlpo rollout evaluation sharing processes vllm"
[[ $# -gt 0 ]] || set -- engine step mlpo rollout evaluation sharing
for part; do
    [[ " $parts " == *" $part "* ]] || { echo "no part $part; there are: $parts" >&2; exit 2; }
    $part
done
