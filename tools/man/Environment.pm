# Reads the table of variables that `ringinfo --environment` prints: a line of name, value, default and range, then one
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
	while ($text =~ /^  (KOLO_\w+) +unset +(\S+) +(\S.*)\n {6}(.+)$/mg) {
		push @found, { name => $1, default => $2 eq '-' ? '' : $2, range => $3, help => $4 };
	}
	my $names = () = $text =~ /^  KOLO_/mg;
	die "$ringinfo --environment has another form\n" if !@found || @found != $names;
	return @found;
}

1;
