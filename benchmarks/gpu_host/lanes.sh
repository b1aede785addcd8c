#!/usr/bin/env bash
# Runs jobs in the background of a GPU host that allows only short commands. A lane has cores and a GPU, and runs its jobs one after
# another, also between commands.
#   lanes.sh begin LANE CORES GPU [GPUS]             start a lane, such as: begin m 16-31 1. With GPUS, such as 0,1, its jobs use these GPUs, and
#                            GPU is only a name, shared by lanes that must not be timed at the same time
#   lanes.sh queue LANE JOB LIMIT_S [needs=JOB,...] [alone] [NAME=VALUE ...] COMMAND...
#                            add a job. A lane next runs its first job whose needs have ended, successfully or not; alone: no other job
#                            of any lane runs on that GPU meanwhile
#   lanes.sh cancel JOB...   end these jobs now, with all their processes; jobs that have not started are never run
#   lanes.sh status          print each job: exit code, seconds, and the end of its log if it failed
#   lanes.sh wait S [by=T] [JOB...]   wait until these jobs (or all) have ended, but at most S seconds, and at most until T seconds after
#                            the first lane began; prints a line every 10 s
#   lanes.sh end LANE...     start no more jobs; running ones continue
#   lanes.sh pack [NAME]     pack $PACK (results and logs, without models and programs) as $OUT/NAME.tar.gz, in parts of 15 MiB
# A job takes the GPU's lock for its timed parts ($LANE_LOCK, ../gpu_engines/gpu_lock.py): other processes of lanes on that GPU are paused
# until it is released. Logs and state: $LANES. Jobs get CUDA_VISIBLE_DEVICES, and LANE_JOB and LANE_GPU, by which their processes are found.
set -u
LANES=${LANES:-/tmp/lanes} jobs=${LANES:-/tmp/lanes}/jobs
me=$(realpath "${BASH_SOURCE[0]}")
PACK=${PACK:-/tmp/gw/results /tmp/gw/logs /tmp/gw/nets $LANES}

begin() { # LANE CORES GPU [GPUS]
  local lane=$LANES/lane-$1
  if [ -e "$lane/worker" ] && kill -0 "$(<"$lane/worker")" 2> /dev/null; then echo "lane $1 has begun already" >&2; return 1; fi
  mkdir -p "$lane" "$jobs"; touch "$LANES/order"; [ -e "$LANES/zero" ] || date +%s > "$LANES/zero"
  echo "$2" > "$lane/cores"; echo "$3" > "$lane/gpu"; echo "${4:-$3}" > "$lane/gpus"
  env -u OUT setsid nohup bash "$me" work "$1" > "$lane/log" 2>&1 < /dev/null &
  echo $! > "$lane/worker"
}
end() { # LANE...
  local lane
  for lane; do kill "$(<"$LANES/lane-$lane/worker")" 2> /dev/null; done
  return 0
}
queue() { # LANE JOB LIMIT_S [needs=JOB,...] [alone] COMMAND...
  local lane=$1 job=$2 folder=$jobs/$2 needs='' alone='' settings=()
  [ -d "$LANES/lane-$lane" ] || { echo "there is no lane $lane: begin it first" >&2; return 1; }
  [ ! -e "$folder" ] || { echo "$job is queued already: take another name" >&2; return 1; }
  local limit=$3; shift 3
  while :; do
    case ${1-} in
      needs=*) needs=${1#needs=} ;;
      alone) alone=1 ;;
      [A-Za-z]*=*) settings+=("$1") ;;
      *) break ;;
    esac
    shift
  done
  (($#)) || { echo "$job has no command" >&2; return 1; }
  mkdir "$folder" || return 1 # else later jobs could wait for one that cannot start
  printf '%q ' "${settings[@]}" "$@" > "$folder/command"
  echo "$limit" > "$folder/limit"; echo "${needs//,/ }" > "$folder/needs"
  [ -z "$alone" ] || touch "$folder/alone"
  echo "$lane $job" >> "$LANES/order"
}
next() { # LANE: print its first job whose needs have ended
  local lane job need
  while read -r lane job; do
    if [ "$lane" != "$1" ] || [ -e "$jobs/$job/code" ]; then continue; fi
    for need in $(<"$jobs/$job/needs"); do [ -e "$jobs/$need/code" ] || continue 2; done
    echo "$job"; return
  done < "$LANES/order"
}
work() { # LANE: run its jobs, endlessly
  local job
  cores=$(<"$LANES/lane-$1/cores") gpu=$(<"$LANES/lane-$1/gpu") gpus=$(<"$LANES/lane-$1/gpus")
  exec 9>> "$LANES/lock-$gpu"
  while :; do
    job=$(next "$1")
    if [ -n "$job" ]; then run_job "$job"; else resume_after_lost_lock; sleep 0.3; fi
  done
}
run_job() { # JOB: run it. It waits until no job has the GPU's lock; a job that runs alone keeps the lock to its end
  local folder=$jobs/$1 code=0 process
  while ! flock -w 1 9; do [ ! -e "$folder/code" ] || return; done # it may have been cancelled
  if [ -e "$folder/code" ]; then flock -u 9; return; fi
  resume "$gpu" # the last holder of the lock may have been killed
  date +%s > "$folder/began"
  if [ -e "$folder/alone" ]; then pause "$gpu" "LANE_JOB=$1"; fi
  (
    exec 9>&-
    export LANES LANE_JOB=$1 LANE_GPU=$gpu CUDA_VISIBLE_DEVICES=$gpus
    if [ ! -e "$folder/alone" ]; then export LANE_LOCK=$LANES/lock-$gpu LANE_SCRIPT=$me; fi
    exec setsid timeout -k 10 "$(<"$folder/limit")" taskset -c "$cores" bash -c "exec env $(<"$folder/command")"
  ) > "$folder/log" 2>&1 < /dev/null &
  process=$!; echo $process > "$folder/process"
  [ ! -e "$folder/code" ] || end_processes "$1" # cancelled before it had a process
  [ -e "$folder/alone" ] || flock -u 9
  while kill -0 $process 2> /dev/null; do sleep 0.2; [ -e "$folder/alone" ] || resume_after_lost_lock; done
  wait $process || code=$?
  echo $(($(date +%s) - $(<"$folder/began"))) > "$folder/seconds"
  [ -e "$folder/code" ] || echo $code > "$folder/code"
  if [ -e "$folder/alone" ]; then resume "$gpu"; flock -u 9; fi
}
processes_with() { grep -lzx "$1" /proc/[0-9]*/environ 2> /dev/null | cut -d/ -f3; } # NAME=VALUE: print the processes with this variable in their environment
pause() { # GPU NAME=VALUE: stop the processes of lanes on that GPU, except those with this variable in their environment
  touch "$LANES/paused-$1"
  local others
  for _ in 1 2 3; do # repeatedly, to stop processes that were started meanwhile
    others=$(processes_with "LANE_GPU=$1" | grep -vxF -e "$(processes_with "$2")")
    [ -z "$others" ] || kill -STOP $others 2> /dev/null
  done
}
resume() { # GPU: continue the stopped processes
  [ -e "$LANES/paused-$1" ] || return 0
  local paused; paused=$(processes_with "LANE_GPU=$1")
  [ -z "$paused" ] || kill -CONT $paused 2> /dev/null
  rm -f "$LANES/paused-$1"
}
resume_after_lost_lock() { # if the holder of the lock has died, continue the others
  if [ -e "$LANES/paused-$gpu" ] && flock -n 9; then resume "$gpu"; flock -u 9; fi
}
cancel() { # JOB...
  local job
  for job; do
    [ -d "$jobs/$job" ] || { echo "there is no job $job" >&2; continue; }
    [ ! -e "$jobs/$job/code" ] || continue
    echo cancelled > "$jobs/$job/code"
    [ ! -e "$jobs/$job/process" ] || end_processes "$job" # else the lane ends them, if the job is just beginning
  done
  return 0
}
end_processes() { # JOB
  # shellcheck disable=SC2046 # one word for each process
  kill -CONT $(processes_with "LANE_JOB=$1") 2> /dev/null
  kill -TERM "$(<"$jobs/$1/process")" 2> /dev/null # timeout passes it on; servers are ended by the process that started them
  for _ in $(seq 20); do [ -n "$(processes_with "LANE_JOB=$1")" ] || return 0; sleep 0.25; done
  # shellcheck disable=SC2046 # one word for each process
  kill -KILL $(processes_with "LANE_JOB=$1") 2> /dev/null
}
status() {
  local lane job folder
  now
  while read -r lane job; do
    folder=$jobs/$job
    printf '%-4s %-22s ' "$lane" "$job"
    if [ -e "$folder/code" ]; then
      echo "$(<"$folder/code"), $(cat "$folder/seconds" 2> /dev/null || echo 0) s"
      case $(<"$folder/code") in 0 | cancelled) ;; *) tail -n 3 "$folder/log" | cut -c1-200 ;; esac
    elif [ -e "$folder/began" ]; then echo "for $(($(date +%s) - $(<"$folder/began"))) s: $(tail -n 1 "$folder/log" | cut -c1-120)"
    else echo "waits; needs: $(<"$folder/needs")"; fi
  done < "$LANES/order"
}
now() { # print a line: running jobs, number of waiting ones, failed ones
  local lane job line="" waiting=0 ended=0 failed=""
  while read -r lane job; do
    if [ -e "$jobs/$job/code" ]; then
      ended=$((ended + 1)); [ "$(<"$jobs/$job/code")" = 0 ] || failed+=" $job=$(<"$jobs/$job/code")"
    elif [ -e "$jobs/$job/began" ]; then line+=" $lane:$job($(($(date +%s) - $(<"$jobs/$job/began"))) s)"
    else waiting=$((waiting + 1)); fi
  done < "$LANES/order"
  echo "$(($(date +%s) - $(<"$LANES/zero"))) s:$line; $waiting wait, $ended ended${failed:+, failed:$failed}"
}
ended() { # [JOB...]: whether these jobs, or all, have ended
  local job lane
  if (($# == 0)); then while read -r lane job; do [ -e "$jobs/$job/code" ] || return 1; done < "$LANES/order"; fi
  for job; do [ -e "$jobs/$job/code" ] || return 1; done
}
await() { # S [by=T] [JOB...]
  local until=$((SECONDS + $1)) printed=-10 left; shift
  if [[ ${1-} == by=* ]]; then
    left=$((SECONDS + $(<"$LANES/zero") + ${1#by=} - $(date +%s))); shift
    if ((left < until)); then until=$left; fi
  fi
  until ended "$@" || ((SECONDS >= until)); do
    if ((SECONDS >= printed + 10)); then now; printed=$SECONDS; fi
    sleep 0.5
  done
  now
}
pack() { # [NAME]
  local name=${1:-results} to=${OUT:?the folder that comes back} part paths='' path
  for path in $PACK; do [ ! -e "$path" ] || paths+=" $path"; done
  [ -n "$paths" ] || { echo "nothing to pack: none of $PACK is there" >&2; return 1; }
  rm -f "$to/$name".tar.gz*
  tar --exclude='*.onnx' --exclude='*.pt2' --exclude='*.safetensors' --exclude='*.npz' --exclude='*.so' --exclude='*.plan' --exclude='cache' \
    --warning=no-file-changed -czf - $paths 2> /dev/null | split -b 15M -d -a 1 - "$to/$name.tar.gz."
  if [ ! -e "$to/$name.tar.gz.1" ]; then mv "$to/$name.tar.gz.0" "$to/$name.tar.gz"; fi
  for part in "$to/$name".tar.gz*; do echo "$(basename "$part"): $(($(stat -c %s "$part") / 1024)) KiB"; done
}
main() {
  local step=${1:-status}; shift
  case $step in
    status | wait) [ -e "$LANES/order" ] || { echo "no lane has begun in $LANES: begin one first" >&2; return 1; } ;;
  esac
  case $step in
    wait) await "$@" ;;
    begin | end | queue | cancel | status | pack | work | pause | resume) "$step" "$@" ;;
    *) echo "lanes.sh: no step $step; the head of $me lists them" >&2; return 2 ;;
  esac
}
main "$@"; exit
