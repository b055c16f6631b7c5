#!/bin/sh
# Install what the tests need beside Python and is not here: Debian's Chromium, Java for Spark, nginx as the proxy.
missing=""
command -v chromium >/dev/null || missing="$missing chromium"
command -v java >/dev/null || [ -x "$JAVA_HOME/bin/java" ] || missing="$missing openjdk-17-jre-headless"
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing="$missing nginx-light"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not here, and this user cannot install it:$missing; the tests that need it will say so"
    exit 0
fi
echo "installing$missing (a minute or two, once)"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null 2>&1 ||
    echo "could not install$missing; the tests that need it will say so"
