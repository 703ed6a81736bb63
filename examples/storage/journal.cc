#include "journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>

namespace storage {

using weft::Result;
using weft::Status;

Result<Journal> Journal::open(const std::string& path) {
    Journal journal;
    journal.path_ = path;
    journal.file_ = Fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
    if (!journal.file_) return errno_status(errno, "can't open the journal '" + path + "'");
    return journal;
}

// So that no name makes lines of its own.
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
                    std::string_view name) const {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "put %016" PRIx64 " %" PRIu64 " %08" PRIx32 " ",
                  transfer, bytes, crc32c);
    return append(numbers + escaped(name));
}

Status Journal::remove(std::string_view name) const { return append("delete " + escaped(name)); }

// One write(): lines of several threads don't mix.
Status Journal::append(const std::string& line) const {
    if (!file_) return {};
    const std::string text = line + "\n";
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) return {};
    return weft::rejected(
        errno_status(written < 0 ? errno : ENOSPC, "can't write the journal '" + path_ + "'"));
}

}  // namespace storage
