#!/usr/bin/env bash
# The claims of AgentPO on one GPU: members, trainings, tables. Run it from the project's root.
#     recipes/h200/agentpo.sh                      # all blocks, the main claims first
#     recipes/h200/agentpo.sh samples strength     # some; docs/claims.md says what each shows and how long it takes
# What is done is passed by, what was cut off goes on. What fails leaves the rest alone, and the exit code says so. Logs: runs/logs.
# What is small enough to keep, tables and the reward of every episode, is copied to runs/tables.
set -uo pipefail
pilotfish=${PILOTFISH:-pilotfish}
python=${PYTHON:-python}
at_once=${AT_ONCE:-3}               # trainings that share the GPU
tables_at_once=${TABLES_AT_ONCE:-2} # evaluations beside them
order=(hint grpo untrained critic cost samples strength second-actor size samples-seeds)

# The tables of each block, recipes of this folder; @SEED where the seed is not the recipe's own. The one without comes last: it holds
# the comparison over all seeds.
declare -A tables=(
    [hint]="hint@1 hint@2 hint"
    [grpo]="against-grpo@1 against-grpo@2 against-grpo"
    [untrained]="untrained"
    [critic]="critic@1 critic@2 critic"
    [cost]="cost"
    [samples]="samples"
    [strength]="strength-50 strength-100 strength-400"
    [second-actor]="transfer debate roles"
    [size]="size"
    [samples-seeds]="samples@1 samples@2 samples"
)
declare -A needs=( # the trainings of each table, with the table's seed
    [hint]="hint" [against-grpo]="hint grpo" [untrained]="" [critic]="critic" [cost]="hint"
    [samples]="samples-500 samples-100 samples-1000"
    [strength-50]="hint strength-50" [strength-100]="hint strength-100" [strength-400]="hint strength-400"
    [transfer]="hint transfer" [debate]="debate" [roles]="roles" [size]="hint small twin"
)
declare -A members=( # of each block, beside the actor and the collaborator
    [strength]="h200/agentpo-actor-50 h200/agentpo-actor-100 h200/agentpo-actor-400"
    [second-actor]="lab/second-actor" [size]="lab/twin lab/small-collaborator"
)

say() { echo "$(date +%T) $*"; }

fail() { # WHAT WHY
    echo "$1" >>"$failed"
    say "$1: FAILED $2"
}

abreast() { # KIND PLACES COMMAND…: as soon as one of the places is free
    local kind=$1 places=$2 place
    shift 2
    while :; do
        for place in $(seq "$places"); do
            exec 9>"runs/logs/place-$kind-$place"
            if flock -n 9; then
                "$@" 9>&-
                exec 9>&-
                return
            fi
        done
        sleep 1
    done
}

logged() { # WHAT RUN DONE COMMAND…: unless there is a file DONE in the run's folder
    local what=$1 run=$2 done=runs/$2/$3 log=runs/logs/$1-$2 began=$SECONDS
    shift 3
    [[ -e $done ]] && return
    if "$@" &>>"$log" && touch "$done"; then
        say "$what $run: $((SECONDS - began)) s"
    else
        fail "$what $run" "after $((SECONDS - began)) s, see $log"
    fi
}

each() { # FUNCTION ITEM…: all at the same time, as far as there are places
    local function=$1 item started=()
    shift
    for item; do
        $function "$item" &
        started+=($!)
    done
    [[ ${#started[@]} == 0 ]] || wait "${started[@]}"
}

run_of() { # [FOLDER/]RECIPE[@SEED]
    local name=$1
    [[ $name == */* ]] || name=h200/agentpo-$name
    name=${name/\//-}
    echo "${name/@/-}"
}

train() { # [FOLDER/]RECIPE[@SEED]
    local recipe=${1%@*} run seed=()
    [[ $recipe == */* ]] || recipe=h200/agentpo-$recipe
    [[ $1 == *@* ]] && seed=(--set "seed=${1#*@}")
    [[ $1 == lab/small-collaborator ]] && halve
    run=$(run_of "$1")
    abreast train "$at_once" logged train "$run" finished.json $pilotfish train "recipes/$recipe.yaml" --run "runs/$run" "${seed[@]}"
    [[ -e runs/$run/finished.json ]] && rm -rf "runs/$run/checkpoints" # 3 GB, to resume from
    keep "$run"
}

halve() { # what the small collaborator starts from
    abreast train "$at_once" logged halve smollm2-15-layers config.json \
        $python -m pilotfish.lab.shallow "${BASE_MODEL:-smollm2}" 15 runs/smollm2-15-layers
}

measure() { # RECIPE[@SEED], once all that it needs is trained
    local recipe=${1%@*} run need settings=() done=measured
    run=$(run_of "$1")
    for need in $(trained_for "$1"); do
        [[ -e runs/$(run_of "$need")/finished.json ]] || { fail "eval $run" "before it began: $need is not trained"; return; }
    done
    mapfile -t settings < <(options "$recipe" "${1#"$recipe"}")
    [[ ${settings[*]-} == *evaluate.seeds* ]] && done=measured-over-seeds
    abreast table "$tables_at_once" logged eval "$run" $done \
        $pilotfish eval "recipes/h200/agentpo-$recipe.yaml" --run "runs/$run" "${settings[@]}"
    keep "$run"
}

trained_for() { # RECIPE[@SEED]: what a table needs
    local recipe=${1%@*} need
    for need in ${needs[$recipe]}; do echo "$need${1#"$recipe"}"; done
}

options() { # RECIPE @SEED: of an evaluation, one a line
    local run seed=${2#@} others
    run=runs/$(run_of "$1")
    if [[ ! $seed ]]; then
        others=$(ls -d "$run"-[0-9]/measured 2>/dev/null | xargs -r dirname | paste -sd,)
        [[ $others ]] && printf '%s\n' --set "evaluate.seeds=[$others]"
        return
    fi
    printf '%s\n' --set "seed=$seed" --set "evaluate.controls=[]"
    case $1 in
    against-grpo)
        printf '%s\n' --set "team.tuned.model=runs/h200-agentpo-grpo-$seed/best" \
            --set "evaluate.weights={AgentPO: runs/h200-agentpo-hint-$seed}"
        ;;
    samples)
        printf '%s\n' --set "evaluate.weights={100 samples: runs/h200-agentpo-samples-100-$seed, \
1000 samples: runs/h200-agentpo-samples-1000-$seed, 500 samples: runs/h200-agentpo-samples-500-$seed}"
        ;;
    esac
}

keep() { # RUN: its recipe and tables, the reward of each episode, the figures of its training
    local to=runs/tables/$1 file
    mkdir -p "$to"
    for file in runs/"$1"/{recipe.yaml,results*.csv,results.md,results.json,metrics.jsonl,best/sft.json}; do
        [[ -e $file ]] && cp "$file" "$to"
    done
    [[ -e runs/$1/scores.jsonl ]] && gzip -9nc "runs/$1/scores.jsonl" >"$to/scores.jsonl.gz"
}

tell() { # BLOCK BEGAN: its tables
    local table of_seeds=() own=()
    for table in ${tables[$1]}; do
        if [[ $table == *@* ]]; then of_seeds+=("$table"); else own+=("$table"); fi
    done
    each measure "${of_seeds[@]}"
    each measure "${own[@]}"
    say "block $1: done $((SECONDS - $2)) s after it began, $SECONDS s since the start"
}

main() {
    local blocks=("$@") block table told=() began
    [[ $# -gt 0 ]] || blocks=("${order[@]}")
    for block in "${blocks[@]}"; do
        [[ -v tables[$block] ]] || { echo "no block $block; there are: ${order[*]}" >&2; exit 2; }
    done
    failed=$(mktemp)
    trap 'rm -f "$failed"' EXIT
    mkdir -p runs/logs
    each train lab/actor lab/collaborator
    say "members: $SECONDS s since the start"
    for block in "${blocks[@]}"; do # its tables are made beside the trainings of the next one
        began=$SECONDS
        each train ${members[$block]-}
        each train $(for table in ${tables[$block]}; do trained_for "$table"; done | awk '!known[$0]++')
        tell "$block" "$began" &
        told+=($!)
    done
    wait "${told[@]}"
    say "${blocks[*]}: $SECONDS s in all"
    if [[ -s $failed ]]; then
        echo "failed: $(paste -sd, "$failed")" >&2
        exit 1
    fi
}

main "$@"
exit
