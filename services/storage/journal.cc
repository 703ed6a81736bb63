#include "journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>

namespace storage {

using weft::Result;
using weft::Status;

// A file that can't be read, as a device or a pipe, counts as whole.
static bool ends_in_a_line(const std::string& path) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    char last = '\n';
    return file && ::lseek(file.get(), -1, SEEK_END) >= 0 && ::read(file.get(), &last, 1) == 1 &&
           last != '\n';
}

Result<Journal> Journal::open(const std::string& path) {
    Journal journal;
    journal.path_ = path;
    // Without O_NONBLOCK a fifo without a reader would block the program for ever.
    constexpr int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
    journal.file_ = Fd(::open(path.c_str(), flags, 0666));
    if (!journal.file_) return errno_status(errno, "can't open the journal '" + path + "'");
    (void)::fcntl(journal.file_.get(), F_SETFL, O_APPEND);  // Writes wait for the fifo's reader.
    journal.is_torn_ = ends_in_a_line(path);
    return journal;
}

// Escapes line breaks, so that no name adds a line of its own.
static std::string escaped(std::string_view name) {
    std::string text;
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > ' ' && byte != 0x7f && byte != '\\') {
            text += c;
            continue;
        }
        char code[5];
        std::snprintf(code, sizeof code, "\\x%02x", byte);
        text += code;
    }
    return text;
}

Status Journal::put(std::uint64_t transfer, std::uint64_t bytes, std::uint32_t crc32c,
                    std::string_view name) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "put %016" PRIx64 " %" PRIu64 " %08" PRIx32 " ",
                  transfer, bytes, crc32c);
    return append(numbers + escaped(name));
}

Status Journal::remove(std::string_view name) { return append("delete " + escaped(name)); }

Status Journal::append(const std::string& line) {
    if (!file_) return {};
    const std::lock_guard lock(*mutex_);
    const std::string text = (is_torn_ ? "\n" : "") + line + "\n";
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written > 0) is_torn_ = written < static_cast<ssize_t>(text.size());
    if (written == static_cast<ssize_t>(text.size())) return {};
    return weft::rejected(
        errno_status(written < 0 ? errno : ENOSPC, "can't write the journal '" + path_ + "'"));
}

}  // namespace storage
