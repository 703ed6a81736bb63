// Random numbers of the kernel when a seccomp profile refuses getrandom().
#include <sys/syscall.h>

#include <cerrno>

#include "base/random.h"
#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;

TEST_CASE("random: KernelRandom reads /dev/urandom when getrandom() is refused") {
    for (const unsigned error : {ENOSYS, EPERM}) {
        CHECK(test::end_of_child([&] {
                  if (!test::refuse_call(SYS_getrandom, error)) return 10;
                  base::KernelRandom random;
                  const std::uint64_t first = random.next();
                  return first != random.next() && first != 0 ? 0 : 1;
              }) == 0);
    }
}

TEST_CASE("random: the program aborts with a message when the kernel gives no random numbers") {
    test::check({"neither getrandom() nor /dev/urandom",
                 [] {
                     test::refuse_call(SYS_getrandom, ENOSYS);
                     test::refuse_call(SYS_openat, EACCES);
                     base::KernelRandom().next();
                 },
                 {"random numbers", "/dev/urandom"}});
}
