/* What every verbs peer needs: one device, and two queue pairs of one process that are connected to each other. */
#include "times.h"
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* RoCE v2 over IPv4, as soft RoCE of the test machine numbers its addresses; -DGID_INDEX=N for another device. */
#ifndef GID_INDEX
#define GID_INDEX 1
#endif
/* What is this short is copied into its work request, as --inline-size of frwr latency: none on soft RoCE, -DINLINE_BYTES=64 on cards. */
#ifndef INLINE_BYTES
#define INLINE_BYTES 0
#endif
#define DEPTH 128

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *sent, *received;
};

static struct ibv_context *context;
static struct ibv_pd *domain;

static void need(int fine, const char *what)
{
	if (!fine) {
		perror(what);
		exit(1);
	}
}

static struct end make_end(void)
{
	struct end end = { 0, ibv_create_cq(context, 4 * DEPTH, 0, 0, 0), ibv_create_cq(context, 4 * DEPTH, 0, 0, 0) };
	struct ibv_qp_init_attr wish = { .send_cq = end.sent, .recv_cq = end.received, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE_BYTES } };
	end.qp = ibv_create_qp(domain, &wish);
	need(!!end.qp, "ibv_create_qp");
	return end;
}

static void connect_to(struct end *end, struct end *other)
{
	int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
	struct ibv_port_attr port;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = all };
	need(!ibv_modify_qp(end->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	need(!ibv_query_port(context, 1, &port), "ibv_query_port");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = other->qp->qp_num,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .dlid = port.lid, .port_num = 1, .grh = { .sgid_index = GID_INDEX, .hop_limit = 64 } } };
	need(!ibv_query_gid(context, 1, GID_INDEX, &a.ah_attr.grh.dgid), "ibv_query_gid");
	need(!ibv_modify_qp(end->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 16 };
	need(!ibv_modify_qp(end->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void open_loopback(const char *name, struct end *one, struct end *other)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (; list && *list && !context; list++)
		if (!strcmp(ibv_get_device_name(*list), name))
			context = ibv_open_device(*list);
	need(!!context, name);
	need(!!(domain = ibv_alloc_pd(context)), "ibv_alloc_pd");
	*one = make_end();
	*other = make_end();
	connect_to(one, other);
	connect_to(other, one);
}

static void wait_for(struct ibv_cq *queue, int number)
{
	struct ibv_wc done[32];
	while (number > 0) {
		int found = ibv_poll_cq(queue, number < 32 ? number : 32, done);
		for (int i = 0; i < found; i++)
			need(!done[i].status, ibv_wc_status_str(done[i].status));
		number -= found;
	}
}

static inline int inline_flag(size_t bytes)
{
	return bytes <= INLINE_BYTES ? IBV_SEND_INLINE : 0;
}
