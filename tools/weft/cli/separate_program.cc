#include "cli/separate_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace weft::tool {

Status become_program(const char* name, char** argv) {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return fail(Code::internal, "/proc/self/exe: " + error.message());
    const std::string program =
        (self.parent_path() / WEFT_PROGRAMS / (std::string("weft-") + name)).lexically_normal();
    ::execv(program.c_str(), argv);
    if (errno == ENOENT) {
        return fail(
            Code::unimplemented,
            "'weft " + std::string(name) + "' is the program " + program +
                ", which is not there: `make build` builds it, and the package weft contains it");
    }
    return fail(Code::internal, program + ": " + std::strerror(errno));
}

}  // namespace weft::tool
