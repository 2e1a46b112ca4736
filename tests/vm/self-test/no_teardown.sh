# shellcheck shell=dash
# The tests pass, and the guest dies while it removes its devices.
run_test good true
printf '#!/bin/sh\n/bin/reboot -f\nsleep 100\n' > /h/bin/rdma
