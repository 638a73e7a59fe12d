# Reads what a tool prints with --help: "usage: ...", then blocks separated by empty lines. A block that begins with
# "Heading:" belongs under that heading; one of lines that begin with two spaces is a list of terms and, two or more
# spaces behind each or below it, their texts. A list under no heading is that of the options.
package Help;
use strict;
use warnings FATAL => 'all';
use Exporter 'import';
our @EXPORT_OK = qw(read_help);

sub read_list {
	my ($block) = @_;
	my @items;

	for my $line (split /\n/, $block) {
		if ($line =~ /^  (\S.*?)(?: {2,}(\S.*))?$/) {
			push @items, [$1, $2 // ''];
		} elsif (@items) {
			$items[-1][1] .= ($items[-1][1] eq '' ? '' : ' ') . $line =~ s/^\s+//r;
		}
	}
	return \@items;
}

# { usage: [line...], headings: [[title, [text or [[term, text]...]]...]...] }; what has no title is DESCRIPTION.
sub read_help {
	my ($text) = @_;
	my ($usage, @blocks) = split /\n\n+/, $text =~ s/\n+$//r;
	my %found = (DESCRIPTION => []);
	my @order = ('DESCRIPTION');

	$usage =~ s/^usage: // or die "no usage: in --help\n";
	for my $block (@blocks) {
		my $title = $block =~ s/^([A-Z][a-z ]+):(?:\n| (?=\S))// ? uc $1
			: $block =~ /^  / ? 'OPTIONS' : 'DESCRIPTION';

		push @order, $title if !$found{$title};
		push @{ $found{$title} }, $block =~ /^  / ? read_list($block) : $block =~ s/\n/ /gr;
	}
	return { usage => [split /\n\s*/, $usage], headings => [map { [$_, $found{$_}] } @order] };
}

1;
