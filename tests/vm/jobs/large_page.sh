# shellcheck shell=dash
# A page of 1 GiB, of which the guest has one from its boot on.

a_page_is_there() { [ "$(cat /sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages)" = 1 ]; }

run_test a_page_is_there a_page_is_there
run_libtest /h/bin/region --exact hugepages_of_one_gibibyte_by_name
