/* Formats numbers for people: see text.h. */
#include "report/text.h"

#include <math.h>
#include <string.h>

#include "trace/ledger.h"

char *bytes_words(double bytes, char text[32]) {
    return format_bytes((uint64_t)(bytes > 0 ? bytes + 0.5 : 0), text, 32);
}

char *signed_bytes(double bytes, char text[32]) {
    char amount[31];
    format_bytes((uint64_t)(fabs(bytes) + 0.5), amount, sizeof amount);
    snprintf(text, 32, "%s%s", bytes < 0 ? "-" : "+", amount);
    return strcmp(amount, "0 B") ? text : strcpy(text, "nothing");
}

char *time_words(double ns, char text[32]) {
    if (ns < 999.5)
        snprintf(text, 32, "%.3g ns", ns);
    else if (ns < 0.9995e6) /* print 1 ms instead of 1000 us */
        snprintf(text, 32, "%.3g us", ns * 1e-3);
    else if (ns < 0.9995e9)
        snprintf(text, 32, "%.3g ms", ns * 1e-6);
    else
        snprintf(text, 32, "%.2f s", ns * 1e-9);
    return text;
}

char *share_words(int batch, int devices, int chunked, char text[32]) {
    int least = batch / devices;
    if (batch % devices == 0)
        snprintf(text, 32, "%d", least);
    else if (chunked)
        snprintf(text, 32, "at most %d", least + 1);
    else
        snprintf(text, 32, "%d or %d", least, least + 1);
    return text;
}
