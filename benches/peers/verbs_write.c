/* Peer of rows A17 and A18: RDMA WRITEs to the other end of a loopback connection, by bare libibverbs.
 * single: post one, poll until it is done; prints the median of that time. each: 32 posts of one, each with a completion.
 * batched: one post of 32, the last with a completion. Both print the time per WRITE. */
#include "loopback.h"

#define BATCH 32

int main(int count, char **arguments)
{
	if (count != 5) {
		fprintf(stderr, "usage: verbs_write DEVICE single|each|batched BYTES ITERATIONS\n");
		return 2;
	}
	int single = !strcmp(arguments[2], "single"), each = !strcmp(arguments[2], "each");
	size_t bytes = strtoul(arguments[3], NULL, 10), rounds = strtoul(arguments[4], NULL, 10);
	int batch = single ? 1 : BATCH;
	struct end ours, peers;
	char *from = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), *to = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	double *times = calloc(rounds, sizeof *times);

	open_loopback(arguments[1], &ours, &peers);
	memset(from, 1, bytes);
	memset(to, 0, bytes);
	struct ibv_mr *source = ibv_reg_mr(domain, from, bytes, 0);
	struct ibv_mr *sink = ibv_reg_mr(domain, to, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	need(source && sink && times, "ibv_reg_mr");
	struct ibv_sge piece = { (uintptr_t)from, bytes, source->lkey };
	struct ibv_send_wr chain[BATCH], *bad;
	memset(chain, 0, sizeof chain);
	for (int i = 0; i < batch; i++) {
		chain[i].next = !each && i + 1 < batch ? &chain[i + 1] : NULL;
		chain[i].sg_list = &piece;
		chain[i].num_sge = 1;
		chain[i].opcode = IBV_WR_RDMA_WRITE;
		chain[i].send_flags = (chain[i].next ? 0 : IBV_SEND_SIGNALED) | inline_flag(bytes);
		chain[i].wr.rdma.remote_addr = (uintptr_t)to;
		chain[i].wr.rdma.rkey = sink->rkey;
	}
	/* The first tenth warms up. */
	double begun = 0;
	size_t warm = rounds / 10;
	for (size_t i = 0; i < rounds; i++) {
		double before = now_us();
		if (i == warm)
			begun = before;
		for (int at = 0; at < (each ? batch : 1); at++)
			need(!ibv_post_send(ours.qp, &chain[at], &bad), "ibv_post_send");
		wait_for(ours.sent, each ? batch : 1);
		times[i] = now_us() - before;
	}
	double per_write = (now_us() - begun) / (rounds - warm) / batch;
	printf("%zu iterations of %d WRITEs of %zu bytes\n", rounds, batch, bytes);
	printf("us %.3f\n", single ? median(times + warm, rounds - warm) : per_write);
	return 0;
}
