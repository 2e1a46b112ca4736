/* Peer of row A19: UCX puts of BYTES to another worker of this process, or gets from it, each complete before the next, from or
 * into memory that UCX has to register each time: UCX_IB_REG_METHODS=direct, UCX_ZCOPY_THRESH=0. Prints the time of one: mean and median.
 * ADDRESS is one of the device's own; the workers meet there by rdma_cm. */
#include "times.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define PORT 7472

static ucp_worker_h ours, peers;
static ucp_conn_request_h asked;

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
	for (; status == UCS_INPROGRESS; status = ucp_request_check_status(request))
		ucp_worker_progress(ours), ucp_worker_progress(peers);
	need(status, what);
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

static void on_request(ucp_conn_request_h request, void *unused)
{
	(void)unused;
	asked = request;
}

int main(int count, char **arguments)
{
	if (count != 5) {
		fprintf(stderr, "usage: ucx_rma ADDRESS put|get BYTES ITERATIONS\n");
		return 2;
	}
	int gets = !strcmp(arguments[2], "get");
	size_t bytes = strtoul(arguments[3], NULL, 10), rounds = strtoul(arguments[4], NULL, 10), length, warm = rounds / 10 + 1;
	struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(arguments[1]) };
	ucs_sock_addr_t address = { (struct sockaddr *)&place, sizeof place };
	ucp_params_t wish = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA };
	ucp_worker_params_t threads = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_listener_params_t door = { .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = address, .conn_handler = { on_request, NULL } };
	ucp_ep_params_t client = { .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, .sockaddr = address };
	ucp_ep_params_t server = { .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST };
	char *ours_data = aligned_alloc(4096, bytes), *peers_data = aligned_alloc(4096, bytes);
	ucp_mem_map_params_t target = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = peers_data, .length = bytes };
	ucp_request_param_t plain = { 0 };
	ucp_listener_h listener;
	ucp_ep_h end, other;
	ucp_context_h context;
	ucp_mem_h memory;
	ucp_rkey_h key;
	void *packed;
	double begun = 0, *times = calloc(rounds + warm, sizeof *times);
	memset(ours_data, 1, bytes), memset(peers_data, 0, bytes);
	need(ucp_init(&wish, NULL, &context), "ucp_init");
	need(ucp_worker_create(context, &threads, &ours), "ucp_worker_create");
	need(ucp_worker_create(context, &threads, &peers), "ucp_worker_create");
	need(ucp_listener_create(peers, &door, &listener), "ucp_listener_create");
	need(ucp_ep_create(ours, &client, &end), "ucp_ep_create");
	while (!asked)
		ucp_worker_progress(ours), ucp_worker_progress(peers);
	server.conn_request = asked;
	need(ucp_ep_create(peers, &server, &other), "ucp_ep_create");
	need(ucp_mem_map(context, &target, &memory), "ucp_mem_map");
	need(ucp_rkey_pack(context, memory, &packed, &length), "ucp_rkey_pack");
	finish(ucp_ep_flush_nbx(end, &plain), "the connection");
	need(ucp_ep_rkey_unpack(end, packed, &key), "ucp_ep_rkey_unpack");
	for (size_t i = 0; i < rounds + warm; i++) {
		double before = now_us();
		begun = i == warm ? before : begun;
		finish(gets ? ucp_get_nbx(end, ours_data, bytes, (uintptr_t)peers_data, key, &plain)
			    : ucp_put_nbx(end, ours_data, bytes, (uintptr_t)peers_data, key, &plain), arguments[2]);
		finish(ucp_ep_flush_nbx(end, &plain), "ucp_ep_flush_nbx");
		times[i] = now_us() - before;
	}
	double time = (now_us() - begun) / rounds;
	need(memcmp(ours_data, peers_data, bytes) ? UCS_ERR_IO_ERROR : UCS_OK, "what arrived");
	printf("%zu iterations of 1 %s of %zu bytes\nus %.3f\nmedian %.3f\n", rounds, arguments[2], bytes, time, median(times + warm, rounds));
	fflush(stdout), _Exit(0); /* Without the long goodbye. */
}
