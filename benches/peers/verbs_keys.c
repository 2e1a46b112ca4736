/* Peer of row A16: makes keys for BYTES of memory and kills them, 32 at a time, by bare libibverbs.
 * reg_mr: ibv_reg_mr and ibv_dereg_mr. windows: type 2 memory windows, one post of binds, one of invalidations.
 * Prints the time per key. */
#include "loopback.h"

#define BATCH 32

static double registered(char *memory, size_t bytes, size_t rounds)
{
	struct ibv_mr *made[BATCH];
	double before = now_us();
	for (size_t i = 0; i < rounds; i++) {
		for (int at = 0; at < BATCH; at++)
			need(!!(made[at] = ibv_reg_mr(domain, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
			     "ibv_reg_mr");
		for (int at = 0; at < BATCH; at++)
			need(!ibv_dereg_mr(made[at]), "ibv_dereg_mr");
	}
	return (now_us() - before) / rounds / BATCH;
}

static double bound(char *memory, size_t bytes, size_t rounds, struct end *end)
{
	struct ibv_mr *base = ibv_reg_mr(domain, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_send_wr binds[BATCH], ends[BATCH], *bad;
	struct ibv_mw *windows[BATCH];
	need(!!base, "ibv_reg_mr");
	memset(binds, 0, sizeof binds);
	memset(ends, 0, sizeof ends);
	for (int at = 0; at < BATCH; at++) {
		need(!!(windows[at] = ibv_alloc_mw(domain, IBV_MW_TYPE_2)), "ibv_alloc_mw");
		binds[at].opcode = IBV_WR_BIND_MW;
		binds[at].bind_mw.mw = windows[at];
		binds[at].bind_mw.bind_info = (struct ibv_mw_bind_info){ base, (uintptr_t)memory, bytes, IBV_ACCESS_REMOTE_WRITE };
		ends[at].opcode = IBV_WR_LOCAL_INV;
		binds[at].next = at + 1 < BATCH ? &binds[at + 1] : NULL;
		ends[at].next = at + 1 < BATCH ? &ends[at + 1] : NULL;
	}
	binds[BATCH - 1].send_flags = ends[BATCH - 1].send_flags = IBV_SEND_SIGNALED;
	double before = now_us();
	for (size_t i = 0; i < rounds; i++) {
		for (int at = 0; at < BATCH; at++)
			binds[at].bind_mw.rkey = ends[at].invalidate_rkey = ibv_inc_rkey(windows[at]->rkey);
		need(!ibv_post_send(end->qp, binds, &bad), "bind");
		wait_for(end->sent, 1);
		/* rxe compares the next bind with the key that the window names. */
		for (int at = 0; at < BATCH; at++)
			windows[at]->rkey = binds[at].bind_mw.rkey;
		need(!ibv_post_send(end->qp, ends, &bad), "invalidate");
		wait_for(end->sent, 1);
	}
	double time = (now_us() - before) / rounds / BATCH;
	for (int at = 0; at < BATCH; at++)
		ibv_dealloc_mw(windows[at]);
	return time;
}

int main(int count, char **arguments)
{
	if (count != 5) {
		fprintf(stderr, "usage: verbs_keys DEVICE reg_mr|windows BYTES ITERATIONS\n");
		return 2;
	}
	size_t bytes = strtoul(arguments[3], NULL, 10), rounds = strtoul(arguments[4], NULL, 10);
	char *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	struct end ours, peers;

	need(!!memory, "memory");
	memset(memory, 1, bytes);
	open_loopback(arguments[1], &ours, &peers);
	int windows = !strcmp(arguments[2], "windows");
	double time = windows ? bound(memory, bytes, rounds, &ours) : registered(memory, bytes, rounds);
	printf("%zu iterations of %d keys for %zu bytes\nus %.3f\n", rounds, BATCH, bytes, time);
	return 0;
}
