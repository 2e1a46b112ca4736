/* Peer of row A19: UCX puts of BYTES to another worker of this process, each complete at the peer before the next, from
 * memory that UCX has to register each time: UCX_IB_REG_METHODS=direct, UCX_ZCOPY_THRESH=0. Prints the time per put. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

static ucp_worker_h ours, peers;

static void need(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

static void finish(ucs_status_ptr_t request, const char *what)
{
	ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_RAW_STATUS(request);
	while (status == UCS_INPROGRESS) {
		ucp_worker_progress(ours);
		ucp_worker_progress(peers);
		status = ucp_request_check_status(request);
	}
	need(status, what);
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

static double now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

int main(int count, char **arguments)
{
	if (count != 3) {
		fprintf(stderr, "usage: ucx_put BYTES ITERATIONS\n");
		return 2;
	}
	size_t bytes = strtoul(arguments[1], NULL, 10), rounds = strtoul(arguments[2], NULL, 10);
	ucp_params_t wish = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA };
	ucp_worker_params_t threads = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_config_t *config;
	ucp_context_h context;
	ucp_address_t *address;
	ucp_ep_h end;
	ucp_mem_h memory;
	ucp_rkey_h key;
	void *packed;
	size_t length;
	char *from = aligned_alloc(4096, bytes), *to = aligned_alloc(4096, bytes);

	memset(from, 1, bytes);
	memset(to, 0, bytes);
	need(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	need(ucp_init(&wish, config, &context), "ucp_init");
	need(ucp_worker_create(context, &threads, &ours), "ucp_worker_create");
	need(ucp_worker_create(context, &threads, &peers), "ucp_worker_create");
	need(ucp_worker_get_address(peers, &address, &length), "ucp_worker_get_address");
	ucp_ep_params_t other = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address };
	need(ucp_ep_create(ours, &other, &end), "ucp_ep_create");
	ucp_mem_map_params_t target = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = to, .length = bytes };
	need(ucp_mem_map(context, &target, &memory), "ucp_mem_map");
	need(ucp_rkey_pack(context, memory, &packed, &length), "ucp_rkey_pack");
	need(ucp_ep_rkey_unpack(end, packed, &key), "ucp_ep_rkey_unpack");
	ucp_request_param_t plain = { 0 };
	double begun = 0;
	size_t warm = rounds / 10 + 1;
	for (size_t i = 0; i < rounds + warm; i++) {
		if (i == warm)
			begun = now_us();
		finish(ucp_put_nbx(end, from, bytes, (uintptr_t)to, key, &plain), "ucp_put_nbx");
		finish(ucp_ep_flush_nbx(end, &plain), "ucp_ep_flush_nbx");
	}
	double time = (now_us() - begun) / rounds;
	if (memcmp(from, to, bytes)) {
		fprintf(stderr, "what arrived is not what was put\n");
		return 1;
	}
	printf("%zu iterations of 1 put of %zu bytes\nus %.3f\n", rounds, bytes, time);
	fflush(stdout);
	_Exit(0);
}
