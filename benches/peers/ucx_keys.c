/* Peer of row A19: registers BYTES of memory with UCX and deregisters them, one time after the other: ucp_mem_map and
 * ucp_mem_unmap. Without UCX's cache of registrations, which UCX_RCACHE_ENABLE=n and UCX_IB_REG_METHODS=direct switch off.
 * Prints the time of one: mean and median. */
#include "times.h"
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

static void need(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

int main(int count, char **arguments)
{
	if (count != 3) {
		fprintf(stderr, "usage: ucx_keys BYTES ITERATIONS\n");
		return 2;
	}
	size_t bytes = strtoul(arguments[1], NULL, 10), rounds = strtoul(arguments[2], NULL, 10), length, warm = rounds / 10 + 1;
	char *data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	double begun = 0, *times = calloc(rounds + warm, sizeof *times);
	ucp_params_t wish = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA };
	ucp_mem_map_params_t range = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = data, .length = bytes };
	ucp_context_h context;
	ucp_mem_h memory;
	void *packed;

	if (!data || !times)
		return 1;
	memset(data, 1, bytes);
	need(ucp_init(&wish, NULL, &context), "ucp_init");
	for (size_t i = 0; i < rounds + warm; i++) {
		double before = now_us();
		begun = i == warm ? before : begun;
		need(ucp_mem_map(context, &range, &memory), "ucp_mem_map");
		need(ucp_mem_unmap(context, memory), "ucp_mem_unmap");
		times[i] = now_us() - before;
	}
	double time = (now_us() - begun) / rounds;
	/* One that no device knows has a key of a few bytes only. */
	need(ucp_mem_map(context, &range, &memory), "ucp_mem_map");
	need(ucp_rkey_pack(context, memory, &packed, &length), "ucp_rkey_pack");
	printf("%zu iterations of 1 key for %zu bytes, %zu bytes packed\n", rounds, bytes, length);
	printf("us %.3f\nmedian %.3f\n", time, median(times + warm, rounds));
	fflush(stdout), _Exit(0); /* Without the long goodbye. */
}
