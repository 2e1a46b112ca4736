/* Peer of row A18: RDMA WRITEs of 8 bytes to places of their own, 32 behind one doorbell and told of by one completion, over
 * functions of libibverbs that do nothing: those of tests/fake/src/discarding.rs. No device is opened. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH 32
#define BYTES 8
#define LINE 64
#define KEY 77

/* A list is completed by the first poll of its queue: the queue's context names the queue pair, whose context is the number of the list's
 * last work request. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
	(void)bad;
	while (list->next)
		list = list->next;
	qp->qp_context = (void *)(uintptr_t)list->wr_id;
	qp->send_cq->cq_context = qp;
	return 0;
}

static int poll_cq(struct ibv_cq *queue, int room, struct ibv_wc *done)
{
	struct ibv_qp *qp = queue->cq_context;
	(void)room;
	if (!qp)
		return 0;
	queue->cq_context = NULL;
	*done = (struct ibv_wc){ .wr_id = (uintptr_t)qp->qp_context, .qp_num = qp->qp_num, .opcode = IBV_WC_RDMA_WRITE };
	return 1;
}

int main(int count, char **arguments)
{
	if (count != 2) {
		fprintf(stderr, "usage: null_write WRITES\n");
		return 2;
	}
	uint64_t writes = strtoull(arguments[1], NULL, 10), done = 0;
	static char from[BATCH * BYTES];
	/* As a library has them: the compiler does not see what is behind a call. */
	struct ibv_context *volatile opened = calloc(1, sizeof *opened);
	struct ibv_context *context = opened;
	context->ops.post_send = post_send, context->ops.poll_cq = poll_cq;
	struct ibv_cq sent = { .context = context };
	struct ibv_qp qp = { .context = context, .send_cq = &sent, .qp_num = 1 };
	while (done < writes) {
		struct ibv_send_wr list[BATCH], *bad;
		struct ibv_sge pieces[BATCH];
		struct ibv_wc completion;
		for (int at = 0; at < BATCH; at++) {
			pieces[at] = (struct ibv_sge){ (uintptr_t)&from[at * BYTES], BYTES, 1 };
			list[at] = (struct ibv_send_wr){ .wr_id = done + at + 1, .next = at + 1 < BATCH ? &list[at + 1] : NULL,
				.sg_list = &pieces[at], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_INLINE | (at + 1 < BATCH ? 0 : IBV_SEND_SIGNALED),
				.wr.rdma = { .remote_addr = (uint64_t)at * LINE, .rkey = KEY } };
		}
		if (ibv_post_send(&qp, list, &bad))
			return 1;
		while (ibv_poll_cq(&sent, 1, &completion) == 0)
			;
		if (completion.status || completion.wr_id != done + BATCH)
			return 1;
		done += BATCH;
	}
	printf("%lu iterations of 1 WRITE\n", (unsigned long)done);
	return 0;
}
