/* The median of times, which a moment's absence of the processor does not move. */
#include <stdlib.h>

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
