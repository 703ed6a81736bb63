#include "store/created_directories.h"

#include "storage/file.h"

namespace weft::tool {

Status CreatedDirectories::make(const std::filesystem::path& directory) {
    const std::lock_guard lock(mutex_);
    std::filesystem::path path;
    for (const auto& part : directory) {
        path /= part;
        std::error_code error;
        if (std::filesystem::create_directory(path, error)) {
            made_.push_back(path);
        } else if (error) {
            return storage::errno_status(error.value(),
                                         "can't make the directory '" + path.string() + "'");
        }
    }
    return {};
}

void CreatedDirectories::remove_empty() {
    const std::lock_guard lock(mutex_);
    for (; !made_.empty(); made_.pop_back()) {
        std::error_code not_empty;
        std::filesystem::remove(made_.back(), not_empty);
    }
}

}  // namespace weft::tool
