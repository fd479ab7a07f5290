/* Ends processes that the ranks of `duet run` have left running. */
#ifndef CLI_RUN_LEFT_OVER_H
#define CLI_RUN_LEFT_OVER_H

#include <sys/types.h>

/* Before the ranks start: whatever they start becomes a child of this process when its own parent
 * has ended, in whichever group or session it is. */
void left_over_adopt(void);

/* Behind the last rank: waits until every child of this process but `kept` has ended. They have
 * half a second to end by themselves, as the helpers of an interpreter do, then get SIGTERM, then
 * SIGKILL, all within a second. Signals to this process wait meanwhile. Where /proc cannot be read
 * nobody is found. */
void left_over_end(pid_t kept);

#endif
