// Random numbers of the kernel, where a profile refuses getrandom().
#include <sys/syscall.h>

#include <cerrno>

#include "base/random.h"
#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;

TEST_CASE("random: a system that refuses getrandom() gives numbers by its device") {
    for (const unsigned error : {ENOSYS, EPERM}) {
        CHECK(test::end_of_child([&] {
                  if (!test::refuse_call(SYS_getrandom, error)) return 10;
                  base::KernelRandom random;
                  const std::uint64_t first = random.next();
                  return first != random.next() && first != 0 ? 0 : 1;
              }) == 0);
    }
}

TEST_CASE("random: a system without any ends the program with a sentence") {
    test::check({"neither getrandom() nor /dev/urandom",
                 [] {
                     test::refuse_call(SYS_getrandom, ENOSYS);
                     test::refuse_call(SYS_openat, EACCES);
                     base::KernelRandom().next();
                 },
                 {"random numbers", "/dev/urandom"}});
}
