/*
 * Loaded into a process ahead of the libc, it gives the names in the file HOLDFAST_NAMES the addresses there, a name and
 * its address in each line. The file is read anew whenever a name is looked up. A name with the address "-" has none.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int find(const char *wanted, char address[64]) {
  const char *path = getenv("HOLDFAST_NAMES");
  FILE *file = path ? fopen(path, "re") : NULL;
  char name[256];
  int found = 0;
  if (!file) return 0;
  while (!found && fscanf(file, "%255s %63s", name, address) == 2) found = strcmp(name, wanted) == 0;
  fclose(file);
  return found;
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  lookup *real = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
  char address[64];
  if (host && find(host, address) && strcmp(address, "-") == 0) return EAI_NONAME;
  return real(host && find(host, address) ? address : host, service, hints, result);
}
