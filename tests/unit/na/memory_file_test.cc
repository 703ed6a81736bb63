// Memory files on systems that refuse some or all of them.
#include "na/memory_file.h"

#include <sys/mman.h>

#include <cerrno>

#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;

TEST_CASE("memory files: a system that forbids executable ones gives files without exec") {
    const int end = test::end_of_child([] {
        const bool has_flag = ::memfd_create("test", 8) >= 0;  // Linux 6.3
        if (!test::refuse_executable_memory_files()) return 10;
        if (::memfd_create("test", MFD_ALLOW_SEALING) >= 0 || errno != EACCES) return 11;
        Result<base::UniqueFd> file = na::make_memory_file("test", 4096);
        if (!has_flag) return file.ok() ? 1 : 0;
        if (!file) return 2;
        if (!na::seal(*file, na::FutureWrite::allowed).ok()) return 3;
        return na::validate_memory_file(file->get(), "file", 1, 4096).ok() ? 0 : 4;
    });
    CHECK(end == 0);
}

TEST_CASE("memory files: the error names memfd_create when the system refuses all of them") {
    for (const unsigned error : {EACCES, ENOSYS, EPERM}) {
        INFO(error);
        const int end = test::end_of_child([&] {
            if (!test::refuse_call(SYS_memfd_create, error)) return 10;
            const Status why = na::make_memory_file("test", 4096).status();
            if (why.code() != Code::resource_exhausted) return 1;
            return why.text().find("memfd_create") != std::string_view::npos ? 0 : 2;
        });
        CHECK(end == 0);
    }
}
