# Reads a README: the Markdown that ours have, as POD.
package Readme;
use strict;
use warnings FATAL => 'all';
use Exporter 'import';
use Text qw(markup definitions paragraphs verbatim);
our @EXPORT_OK = qw(read_readme section_text);

# Stands above a block, in a line of its own, that makes no sense where Kolo is installed.
my $left_out = '<!-- not in the manual -->';

# Its sections by title, each a list of blocks: { kind: code | table | text, text }.
sub read_readme {
	my ($path) = @_;
	my (%sections, $blocks, $fence, $skip);
	open my $in, '<', $path or die "$path: $!\n";

	while (my $line = <$in>) {
		if ($line =~ /^```/) {
			$fence = !$fence;
			push @$blocks, { kind => 'code', text => '' } if $fence;
		} elsif ($fence) {
			$blocks->[-1]{text} .= $line;
		} elsif ($line =~ /^#+ (.*)/) {
			$blocks = $sections{$1} = [];
		} elsif ($line eq "$left_out\n") {
			$skip = 1;
		} elsif ($line =~ /^$/) {
			$skip = 0;
			push @$blocks, { kind => 'none' };
		} elsif (!$skip) {
			add_line($blocks, $line);
		}
	}
	@$_ = grep { $_->{kind} ne 'none' } @$_ for values %sections;
	return \%sections;
}

sub add_line {
	my ($blocks, $line) = @_;
	my $kind = $line =~ /^\|/ ? 'table' : $line =~ s/^    // ? 'code' : 'text';
	my $goes_on = @$blocks && $blocks->[-1]{kind} eq $kind && $line !~ /^- /;

	push @$blocks, { kind => $kind, text => '' } if !$goes_on;
	$blocks->[-1]{text} .= $line;
}

# | term | ... | text |: the columns between stand in brackets behind the text, with their titles.
sub table {
	my ($format, $text) = @_;
	my @rows = map { [map { s/^\s+|\s+$//gr } (split /\|/)[1 .. tr/|// - 1]] } split /\n/, $text;
	my @names = @{ shift @rows };

	shift @rows; # the rule
	return definitions(map {
		my ($term, @cells) = @$_;
		my $last = pop @cells;
		my @extra = map { $cells[$_] eq '' ? () : "$names[$_ + 1]: $cells[$_]" } 0 .. $#cells;
		[[$format->($term)], $format->($last . (@extra ? ' (' . join('; ', @extra) . ')' : ''))];
	} @rows);
}

# A section as POD; kinds that `without` names are left out.
sub section_text {
	my ($readme, $title, $known, %without) = @_;
	my $blocks = $readme->{$title} or die "the README has no section '$title'\n";
	my $format = sub { markup($_[0] =~ s/\[([^]]+)\]\([^)]+\)/$1/gr, $known, {}) };
	my ($out, @texts) = ('');

	for my $block (@$blocks, { kind => 'end' }) {
		if ($block->{kind} eq 'text') {
			push @texts, join ' ', map { s/^\s+//r } split /\n/, $block->{text};
			next;
		}
		$out .= paragraphs($format, splice @texts);
		$out .= verbatim($block->{text}) if $block->{kind} eq 'code' && !$without{code};
		$out .= table($format, $block->{text}) if $block->{kind} eq 'table';
	}
	return $out;
}

1;
