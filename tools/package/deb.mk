# Debian packages, from a copy of the tree in build/deb; included by the Makefile.
DEB := build/deb

.PHONY: deb check-deb
# The tests run in this tree; DEB_BUILD_OPTIONS= DEB_BUILD_PROFILES= lets them run in the package's too.
deb:
	@command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null || \
		{ echo "make deb: dpkg-dev or debhelper is missing: make deps-all"; exit 1; }
	@[ "$$(dpkg-parsechangelog -l tools/package/debian/changelog -S Version)" = "$(VERSION)" ] || \
		{ echo "make deb: tools/package/debian/changelog does not begin with version $(VERSION)"; exit 1; }
	@rm -rf $(DEB)
	@mkdir -p $(DEB)/kolo-$(VERSION)
	@{ git ls-files 2>/dev/null | grep . || find . -path ./build -prune -o -type f -print; } | \
		tar -c -T - | tar -x -C $(DEB)/kolo-$(VERSION)
	@cp -R tools/package/debian $(DEB)/kolo-$(VERSION)/debian
	cd $(DEB)/kolo-$(VERSION) && env -u MAKEFLAGS -u MAKELEVEL -u SAN -u DESTDIR -u MANDIR \
		DEB_BUILD_OPTIONS="$${DEB_BUILD_OPTIONS-nocheck}" \
		DEB_BUILD_PROFILES="$${DEB_BUILD_PROFILES-nocheck}" \
		dpkg-buildpackage -b -us -uc >../log 2>&1 || { tail -n 30 ../log; exit 1; }
	@ls $(DEB)/*.deb

check-deb:
	@MAKE='$(MAKE_COMMAND)' VERSION=$(VERSION) tests/run tests/install/deb.sh
