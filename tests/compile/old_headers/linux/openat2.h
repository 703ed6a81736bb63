#error "Linux 4.18 has no <linux/openat2.h>"
