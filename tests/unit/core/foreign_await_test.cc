// Every form of awaitable that a program may define, awaited by a task.
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/resume_soon.h"

namespace weft::foreign_await_test {
namespace {

using test::resume_soon;

const std::string text = "a text that is too long to be kept in place";

// Can't be moved, and owns memory that must be freed once.
class Fixed {
  public:
    explicit Fixed(std::string of) : text_(std::make_unique<std::string>(std::move(of))) {}
    Fixed(const Fixed&) = delete;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) { resume_soon(awaiting); }
    std::string& await_resume() { return *text_; }

  private:
    std::unique_ptr<std::string> text_;
};

// Does not suspend; its result can only be moved.
class Taken {
  public:
    explicit Taken(int value) : value_(std::make_unique<int>(value)) {}
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<>) const { return false; }
    std::unique_ptr<int> await_resume() { return std::move(value_); }

  private:
    std::unique_ptr<int> value_;
};

struct Transfers {
    bool await_ready() const { return false; }
    template <class Promise>
    std::coroutine_handle<Promise> await_suspend(std::coroutine_handle<Promise> self) const {
        return self;
    }
    int await_resume() const { return 3; }
};

class OnlyTemporary {
  public:
    explicit OnlyTemporary(std::string of) : text_(std::move(of)) {}
    Fixed operator co_await() && { return Fixed(std::move(text_)); }

  private:
    std::string text_;
};

class ByReference {
  public:
    Fixed& operator co_await() { return fixed_; }

  private:
    Fixed fixed_{text};
};

class Free {
  public:
    explicit Free(std::string of) : text_(std::move(of)) {}
    friend Fixed operator co_await(const Free& free) { return Fixed(free.text_); }

  private:
    std::string text_;
};

// Found by unqualified lookup only, since its argument's type is not of this namespace.
Taken operator co_await(Duration time) { return Taken(static_cast<int>(time / 1ms)); }

enum class Where : std::uint8_t { ready, suspend, resume };

struct Throws {
    Where where;
    bool await_ready() const {
        return where == Where::ready ? throw std::runtime_error("") : false;
    }
    void await_suspend(std::coroutine_handle<> awaiting) const {
        if (where == Where::suspend) throw std::runtime_error("");
        resume_soon(awaiting);
    }
    void await_resume() const { throw std::runtime_error(""); }
};

Fixed made_of(const std::string& of) { return Fixed(of + "!"); }

Task<int> temporaries() {
    int right = 0;
    std::string got = co_await Fixed(text);
    right += got == text;
    got = co_await made_of(text + text);
    right += got == text + text + "!";
    const std::unique_ptr<int> five = co_await Taken(5);
    right += *five == 5;
    const int three = co_await Transfers();
    right += three == 3;
    got = co_await OnlyTemporary(text);
    right += got == text;
    got = co_await ByReference();
    right += got == text;
    got = co_await Free(text);
    right += got == text;
    const std::unique_ptr<int> nine = co_await Duration(9ms);
    right += *nine == 9;
    co_return right;
}

Task<int> variables() {
    int right = 0;
    Fixed fixed(text);
    std::string* const one = &co_await fixed;
    std::string* const other = &co_await std::move(fixed);
    right += one == other && *one == text;
    const auto pointer = std::make_unique<Fixed>(text);
    right += &co_await *pointer == &co_await *pointer;
    Taken taken(6);
    const std::unique_ptr<int> six = co_await taken, none = co_await taken;
    right += *six == 6 && !none;
    OnlyTemporary moved(text);
    right += co_await std::move(moved) == text;
    ByReference by_reference;
    right += &co_await by_reference == &co_await by_reference;
    const Free free(text);
    right += co_await free == text;
    const Transfers transfers;
    right += co_await transfers == 3;
    co_return right;
}

Task<int> thrown() {
    int caught = 0;
    for (const Where where : {Where::ready, Where::suspend, Where::resume}) {
        const Throws throws{where};
        try {
            co_await throws;
        } catch (const std::runtime_error&) {
            ++caught;
        }
    }
    co_return caught;
}

TEST_CASE("a task awaits every form of awaitable that a program defines") {
    Runtime runtime = Runtime::create().value();
    CHECK(runtime.block_on(temporaries()) == 8);
    CHECK(runtime.block_on(variables()) == 7);
    CHECK(runtime.block_on(thrown()) == 3);
}

}  // namespace
}  // namespace weft::foreign_await_test
