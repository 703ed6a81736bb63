// <weft/asio.h> and Boost compile and link with nothing but weft::asio.
#include <boost/asio/io_context.hpp>

#include <weft/asio.h>
#include <weft/runtime.h>

int main() {
    boost::asio::io_context context;
    context.run();
    return weft::Runtime::create().ok() ? 0 : 1;
}
