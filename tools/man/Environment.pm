# Reads the table of variables that `ringinfo --environment` prints: a line of name, value, default and range, then some
# of what the variable is for.
package Environment;
use strict;
use warnings FATAL => 'all';
use Exporter 'import';
our @EXPORT_OK = qw(read_variables);

# { name, default ('' if there is none), range, help }, in the order of the table.
sub read_variables {
	my ($ringinfo) = @_;
	my @found;

	delete local @ENV{grep { /^KOLO_/ } keys %ENV}; # so that all of them are unset
	my $text = qx("$ringinfo" --environment);
	die "$ringinfo --environment failed\n" if $?;
	while ($text =~ /^  (KOLO_\w+) +unset +(\S+) +(\S.*)\n((?: {6}.+\n)+)/mg) {
		my ($name, $default, $range, $help) = ($1, $2, $3, join ' ', map { s/^ +//r } split /\n/, $4);
		push @found, { name => $name, default => $default eq '-' ? '' : $default, range => $range, help => $help };
	}
	my $names = () = $text =~ /^  KOLO_/mg;
	die "$ringinfo --environment has another form\n" if !@found || @found != $names;
	return @found;
}

1;
