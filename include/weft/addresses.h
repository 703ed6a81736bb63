// One address or several addresses of the same server, made from `connect("sm://a")` and
// `connect({"sm://a", …})`.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

// The addresses of one server. Any order: the client chooses.
class Addresses {
  public:
    Addresses(const char* uri) : uris_{uri} {}
    Addresses(std::string_view uri) : uris_{std::string(uri)} {}
    Addresses(std::string uri) { uris_.push_back(std::move(uri)); }
    Addresses(std::initializer_list<std::string_view> uris) : uris_(uris.begin(), uris.end()) {}
    Addresses(std::vector<std::string> uris) : uris_(std::move(uris)) {}

    const std::vector<std::string>& uris() const { return uris_; }

  private:
    std::vector<std::string> uris_;
};

}  // namespace weft
