# shellcheck shell=dash
# Rows A14, A15 and ours of A19: 4 KiB requests with a key each, with one key for the whole run, and with ibv_reg_mr for each;
# depths 1, 8 and 32. Counts of rows A10 to A12 come along.
# limit: 300
. /h/guest/figures.sh

# The requests of one kind at one depth.
take() { # key depth
    latency --op request --key "$1" --size 4096 --depth "$2" --runtime 0.5 --warm-up 0.2 && sample "$1_$2" "$(us_per_request)"
}

counts() { # depth
    sample "doorbells_$1" "$(reported doorbells_per_request)"
    sample "work_requests_$1" "$(reported work_requests_per_request)"
    sample "completions_$1" "$(reported send_completions_per_request)"
}

turns() { # depth
    take static "$1" && take request "$1" && counts "$1" && take memory "$1"
}

# Data go the other way: the peer reads.
reading() {
    latency --op request --key request --peer read --size 4096 --depth 1 --runtime 0.5 --warm-up 0.2 && sample request_read_1 "$(us_per_request)"
}

large() {
    latency --op request --key request --size 1048576 --depth 1 --runtime 0.5 --warm-up 0.2 && sample request_1_1048576 "$(us_per_request)"
}

keys_of() { # depth
    echo "static_$1 request_$1 memory_$1 doorbells_$1 work_requests_$1 completions_$1"
}

for depth in 1 8 32; do
    rounds "depth_$depth" "$(keys_of $depth)" turns $depth
done
rounds reading request_read_1 reading
rounds one_mebibyte request_1_1048576 large
