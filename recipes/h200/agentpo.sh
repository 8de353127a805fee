#!/usr/bin/env bash
# The claims of AgentPO: members, trainings, tables. Run it from the project's root.
#     recipes/h200/agentpo.sh                      # all blocks, the main claims first
#     recipes/h200/agentpo.sh samples strength     # some; docs/claims.md says what each shows and how long it takes
#     GPUS="0 1" recipes/h200/agentpo.sh           # on two GPUs
# common.bash says how they are run and what is kept of them.
set -uo pipefail
. "$(dirname "$0")/common.bash"
order=(hint grpo untrained critic cost samples strength abler second-actor size samples-seeds)
declare -A tables=( # the one without a seed comes last: it holds the comparison over all seeds
    [hint]="agentpo-hint@1 agentpo-hint@2 + agentpo-hint"
    [grpo]="agentpo-against-grpo@1 agentpo-against-grpo@2 + agentpo-against-grpo"
    [untrained]="agentpo-untrained"
    [critic]="agentpo-critic@1 agentpo-critic@2 + agentpo-critic"
    [cost]="agentpo-cost"
    [samples]="agentpo-samples"
    [strength]="agentpo-strength-50 agentpo-strength-100 agentpo-strength-200 agentpo-strength-400"
    [abler]="agentpo-strength-200 agentpo-strength-abler"
    [second-actor]="agentpo-transfer agentpo-debate agentpo-roles"
    [size]="agentpo-size"
    [samples-seeds]="agentpo-samples@1 agentpo-samples@2 + agentpo-samples"
)
declare -A needs=(
    [agentpo-hint]="agentpo-hint"
    [agentpo-against-grpo]="agentpo-hint agentpo-grpo"
    [agentpo-untrained]=""
    [agentpo-critic]="agentpo-critic"
    [agentpo-cost]="agentpo-hint"
    [agentpo-samples]="agentpo-samples-500 agentpo-samples-100 agentpo-samples-1000"
    [agentpo-strength-50]="agentpo-hint agentpo-strength-50"
    [agentpo-strength-100]="agentpo-hint agentpo-strength-100"
    [agentpo-strength-200]="agentpo-hint"
    [agentpo-strength-400]="agentpo-hint agentpo-strength-400"
    [agentpo-strength-abler]="agentpo-hint agentpo-strength-abler"
    [agentpo-transfer]="agentpo-hint agentpo-transfer"
    [agentpo-debate]="agentpo-debate"
    [agentpo-roles]="agentpo-roles"
    [agentpo-size]="agentpo-hint agentpo-small agentpo-twin"
)
members=(lab/actor lab/collaborator)
declare -A of=(
    [strength]="h200/agentpo-actor-50 h200/agentpo-actor-100 h200/agentpo-actor-400"
    [abler]="lab/abler-actor"
    [second-actor]="lab/second-actor"
    [size]="lab/twin lab/small-collaborator"
)

options() { # TABLE [SEED]
    local run=runs/h200-$1 seed=${2-} others
    if [[ ! $seed ]]; then
        others=$(ls -d "$run"-[0-9]/measured 2>/dev/null | xargs -r dirname | paste -sd,)
        [[ $others ]] && printf '%s\n' --set "evaluate.seeds=[$others]"
        return
    fi
    printf '%s\n' --set "seed=$seed" --set "evaluate.controls=[]"
    case $1 in
    agentpo-against-grpo)
        printf '%s\n' --set "team.tuned.model=runs/h200-agentpo-grpo-$seed/best" \
            --set "evaluate.weights={AgentPO: runs/h200-agentpo-hint-$seed}"
        ;;
    agentpo-samples)
        printf '%s\n' --set "evaluate.weights={100 samples: runs/h200-agentpo-samples-100-$seed, \
1000 samples: runs/h200-agentpo-samples-1000-$seed, 500 samples: runs/h200-agentpo-samples-500-$seed}"
        ;;
    esac
}

before() { # what the small collaborator starts from
    [[ " $* " != *" size "* || -e runs/smollm2-15-layers/config.json ]] ||
        ${PYTHON:-python} -m pilotfish.lab.shallow "${BASE_MODEL:-smollm2}" 15 runs/smollm2-15-layers
}

main "$@"
exit
