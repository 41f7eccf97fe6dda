/* bind() that takes the address in LISTEN_ADDRESS (IPv4) where a TCP socket would take every interface's. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t length = sizeof value;
    getsockopt(fd, level, name, &value, &length);
    return value;
}

int bind(int fd, const struct sockaddr *given, socklen_t length)
{
    int (*libc_bind)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    const char *text = getenv("LISTEN_ADDRESS");
    struct in_addr own;
    if (!given || !text || inet_pton(AF_INET, text, &own) != 1 || option(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM)
        return libc_bind(fd, given, length);

    if (given->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in copy = *(const struct sockaddr_in *)given;
        if (copy.sin_addr.s_addr == htonl(INADDR_ANY)) {
            copy.sin_addr = own;
            return libc_bind(fd, (struct sockaddr *)&copy, sizeof copy);
        }
    } else if (given->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 copy = *(const struct sockaddr_in6 *)given;
        if (IN6_IS_ADDR_UNSPECIFIED(&copy.sin6_addr)) {
            if (option(fd, IPPROTO_IPV6, IPV6_V6ONLY)) {
                copy.sin6_addr = in6addr_loopback;
            } else {
                inet_pton(AF_INET6, "::ffff:0.0.0.0", &copy.sin6_addr);
                memcpy(&copy.sin6_addr.s6_addr[12], &own, sizeof own);
            }
            return libc_bind(fd, (struct sockaddr *)&copy, sizeof copy);
        }
    }
    return libc_bind(fd, given, length);
}
