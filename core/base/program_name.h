/* The running program: the command `duet`, or a user's program that calls duet_command (duet.h). */
#ifndef BASE_PROGRAM_NAME_H
#define BASE_PROGRAM_NAME_H

/* The name under which it was started, without folders: "duet", "mynet". */
const char *program_name(void);

#endif
