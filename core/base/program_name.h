/* The program that runs: the command `duet`, or a user's program that has become it by duet_command
 * (duet.h). */
#ifndef BASE_PROGRAM_NAME_H
#define BASE_PROGRAM_NAME_H

/* Its name as it was started, without folders: "duet", "mynet". */
const char *program_name(void);

#endif
