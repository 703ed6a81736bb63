#include "new/project.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "storage/file.h"

namespace weft::tool {

namespace {

Status make_directory(const std::string& directory) {
    if (::mkdir(directory.c_str(), 0777) == 0) return {};
    const int error = errno;
    std::error_code unreadable;
    const bool is_empty = std::filesystem::is_empty(directory, unreadable);
    if (error != EEXIST || unreadable) {
        return storage::errno_status(error, "can't make the directory '" + directory + "'");
    }
    if (is_empty && std::filesystem::is_directory(directory)) return {};
    return Status(Code::already_exists,
                  "'" + directory + "' exists: name a directory that is new or empty");
}

Status write_file(const std::string& path, std::string_view text) {
    storage::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file) return storage::errno_status(errno, "can't create '" + path + "'");
    const std::string what = "'" + path + "'";
    if (Status written = storage::write_all(file.get(), as_bytes(text), what); !written.ok()) {
        return written;
    }
    // Network file systems report a full disk at close().
    if (::close(file.release()) != 0) return storage::errno_status(errno, "can't write " + what);
    return {};
}

}  // namespace

Status write_project(const std::string& directory) {
    if (Status made = make_directory(directory); !made.ok()) return made;
    for (const TemplateFile& file : template_files()) {
        const std::string path = directory + "/" + std::string(file.name);
        if (Status written = write_file(path, file.text); !written.ok()) return written;
    }
    return {};
}

}  // namespace weft::tool
