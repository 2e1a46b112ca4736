/* What peers need that take times: a clock, and the median, which a moment's absence of the processor does not move. */
#include <stdlib.h>
#include <time.h>

static double now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* It sorts them. */
static inline double median(double *times, size_t number)
{
	qsort(times, number, sizeof *times, by_value);
	return times[number / 2];
}
