/* bind() and listen() that take the IPv4 address in QWEN3_RL_LISTEN_ADDRESS where a TCP socket would take every
   interface's. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int (*libc_bind)(int, const struct sockaddr *, socklen_t);
static int (*libc_listen)(int, int);
static struct in_addr own;
static int confined;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("QWEN3_RL_LISTEN_ADDRESS");
    libc_bind = dlsym(RTLD_NEXT, "bind");
    libc_listen = dlsym(RTLD_NEXT, "listen");
    confined = text && inet_pton(AF_INET, text, &own) == 1;
}

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t length = sizeof value;
    getsockopt(fd, level, name, &value, &length);
    return value;
}

static int is_any(const struct in6_addr *address)
{
    static const struct in6_addr mapped = {{{[10] = 0xff, [11] = 0xff}}}; /* 0.0.0.0 as IPv6 writes it */
    return IN6_IS_ADDR_UNSPECIFIED(address) || memcmp(address, &mapped, sizeof mapped) == 0;
}

int bind(int fd, const struct sockaddr *given, socklen_t length)
{
    if (!libc_bind)
        begin(); /* called by another library's constructor */
    if (!confined || !given || option(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM)
        return libc_bind(fd, given, length);

    if (given->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in copy = *(const struct sockaddr_in *)given;
        if (copy.sin_addr.s_addr == htonl(INADDR_ANY)) {
            copy.sin_addr = own;
            return libc_bind(fd, (struct sockaddr *)&copy, sizeof copy);
        }
    } else if (given->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 copy = *(const struct sockaddr_in6 *)given;
        if (is_any(&copy.sin6_addr) && option(fd, IPPROTO_IPV6, IPV6_V6ONLY)) {
            copy.sin6_addr = in6addr_loopback;
            int done = libc_bind(fd, (struct sockaddr *)&copy, sizeof copy);
            if (done == 0 || errno != EADDRNOTAVAIL) /* then no interface has an IPv6 address */
                return done;
        } else if (is_any(&copy.sin6_addr)) {
            inet_pton(AF_INET6, "::ffff:0.0.0.0", &copy.sin6_addr);
            memcpy(&copy.sin6_addr.s6_addr[12], &own, sizeof own);
            return libc_bind(fd, (struct sockaddr *)&copy, sizeof copy);
        }
    }
    return libc_bind(fd, given, length);
}

int listen(int fd, int backlog)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    if (!libc_listen)
        begin();
    /* A socket that was never bound listens everywhere, at a port of the kernel's choice. */
    if (confined && getsockname(fd, (struct sockaddr *)&at, &length) == 0 &&
        ((at.ss_family == AF_INET && ((struct sockaddr_in *)&at)->sin_port == 0) ||
         (at.ss_family == AF_INET6 && ((struct sockaddr_in6 *)&at)->sin6_port == 0)) &&
        bind(fd, (struct sockaddr *)&at, length) != 0)
        return -1;
    return libc_listen(fd, backlog);
}
