# Reads a public header: what its comments say of which declaration. The form it relies on:
# - Blank lines separate chunks; a chunk is a comment and the declarations that it speaks of.
# - The first comment of the file is an overview. A comment like "---- Title ----" begins a section. Any other
#   comment that stands alone speaks of all functions of its section.
# - A member of a struct or enum has its comment behind it, or above it; one above holds for all members up to
#   the next comment.
# - A comment's paragraphs are separated by empty lines; a line that begins with "- " is an item of a list.
#   Lines that are indented by four blanks or more are shown as they are: code, or a table.
package Header;
use strict;
use warnings FATAL => 'all';
use Exporter 'import';
our @EXPORT_OK = qw(read_header blocks);

# The paragraphs and items of a comment, each one line; items keep their "- ". Indented lines that follow each
# other are one block, with their line ends and indentation.
sub blocks {
	my ($comment) = @_;
	my @blocks = ('');

	for my $line (split /\n/, $comment) {
		$line =~ s/^\s*\*? ?//;
		my $as_is = $line =~ /^ {4}/;
		push @blocks, '' if $line =~ /^(- |$)/ || $as_is != ($blocks[-1] =~ /^ {4}/);
		$blocks[-1] .= ($blocks[-1] eq '' ? '' : $as_is ? "\n" : ' ') . $line if $line ne '';
	}
	s/\s+/ /g, s/^ | $//g for grep { !/^ {4}/ } @blocks;
	return grep { $_ ne '' } @blocks;
}

# Members of an enum or a struct, grouped by the comment that they share: { names, text }.
sub read_members {
	my ($body, $separator) = @_;
	my (@groups, $above);

	while (1) {
		if ($body =~ m{\G\s*/\*(.*?)\*/}gcs) {
			push @groups, $above = { names => [], text => join ' ', blocks($1) };
			next;
		}
		$body =~ /\G\s*([^$separator]+)$separator/gc or last;
		my $name = $1 =~ s/\s+/ /gr;
		if ($body =~ m{\G[ \t]*/\*(.*?)\*/}gcs) {
			push @groups, { names => [$name], text => join ' ', blocks($1) };
			$above = undef;
		} elsif ($above) {
			push @{ $above->{names} }, $name;
		} else {
			push @groups, { names => [$name], text => '' };
		}
	}
	return \@groups;
}

# The declarations of one chunk, all under the same comment.
sub read_declarations {
	my ($header, $body, $comment) = @_;
	my @functions;

	for ($body) {
		while (!/\G\s*\z/gc) {
			if (/\G(enum|struct) (\w+) \{(.*?)^\};/gcms) {
				$header->{types}{"$1 $2"} = {
					comment => $comment,
					members => read_members($3, $1 eq 'enum' ? ',' : ';'),
				};
			} elsif (m{\G(struct \w+);\s*/\*(.*?)\*/}gcs) {
				$header->{types}{$1} = { comment => $2, members => [] };
			} elsif (/\G#define (\w+)\s+(\S.*)/gc) {
				$header->{macros}{$1} = { value => $2, comment => $comment };
			} elsif (/\G(typedef [^;]*?\b(\w+)\([^;]*\));/gc) {
				my ($typedef, $name) = ($1, $2);
				$typedef =~ s/\s+/ /g;
				$header->{types}{$name} = { comment => $comment, members => [], typedef => $typedef };
			} elsif (/\G(\w[^;{]*?\b(\w+)\([^;]*\));/gc) {
				my ($prototype, $name) = ($1, $2);
				push @functions, { name => $name, prototype => $prototype =~ s/\s+/ /gr };
			} else {
				/\G.*\n?/gc;
			}
		}
	}
	push @{ $header->{sections}[-1]{pages} }, { functions => \@functions, comment => $comment } if @functions;
}

# The overview of a header that is not the first: the title and the common text of a section.
sub begin_header {
	my ($header, $path, $comment) = @_;
	my $title = $comment =~ s/^ (.*?): (.)/  \u$2/ ? $1 : die "$path: the overview has no title\n";

	push @{ $header->{sections} }, { title => $title, common => $comment, pages => [], path => $path };
}

# Of all headers together:
# { overview, sections: [{ title, common, path: of its header, pages: [{ functions: [{ name, prototype }], comment }] }],
#   types: { "struct x" => { comment, members, typedef: of a function type } }, macros: { X => { value, comment } } }
sub read_header {
	my $header = { sections => [{ title => '', common => '', pages => [], path => $_[0] }], types => {}, macros => {} };

	read_one($header, $_) for @_;
	return $header;
}

sub read_one {
	my ($header, $path) = @_;
	open my $in, '<', $path or die "$path: $!\n";
	my @chunks = split /\n\s*\n/, do { local $/; <$in> };
	my $begun;

	for my $chunk (@chunks) {
		my $comment = $chunk =~ s{\A\s*/\*(.*?)\*/\s*}{}s ? $1 : '';
		if (!defined $header->{overview}) {
			$header->{overview} = $comment;
		} elsif ($path ne $header->{sections}[0]{path} && !$begun++) {
			begin_header($header, $path, $comment);
		} elsif ($comment =~ /^ -{4,} (.*?) -{4,}/) {
			push @{ $header->{sections} }, { title => $1, common => '', pages => [], path => $path };
		} elsif ($chunk eq '') {
			$header->{sections}[-1]{common} .= $comment;
		}
		read_declarations($header, $chunk, $comment);
	}
}

1;
