# Plain text, as comments, --help and the README have it, as POD.
package Text;
use strict;
use warnings FATAL => 'all';
use Exporter 'import';
our @EXPORT_OK = qw(escape markup markup_command summary paragraphs definitions verbatim wrap_prototype);

sub escape {
	my ($text) = @_;
	return $text =~ s/([<>])/$1 eq '<' ? 'E<lt>' : 'E<gt>'/ger;
}

# What is more than a word in running text: "string", `code`, **bold**, --option, a header, an identifier, a word that
# may be a page or a parameter.
my $token = qr{
	\bkolo-environment(?:\(\d?\))? | "[^" ]*" | `[^`]+` | \*\*.+?\*\* | (?<![\w-])--?[a-z][\w-]* |
	\b\w+\.h\b | \b(?:enum\ |struct\ )?(?i:kolo)_\w+(?:\(\d?\))? | \b[a-z]+(?:\(\d?\))?
}x;

# One line of text. `known` tells the section of what has a page, '' of the page itself; `italic` which words are
# parameters.
sub markup {
	my ($text, $known, $italic) = @_;

	return join '', map {
		my $bare = s/^(`|\*\*)(.*)\1$/$2/r;
		my $name = $bare =~ s/\(\d?\)$//r;
		!/^$token$/ || /^"/ ? escape($_)
			: $known->{$name} ? "B<$name>($known->{$name})"
			: $italic->{$name} ? "I<$name>"
			: exists $known->{$name} || $bare ne $_ || /^-|kolo_/i ? 'B<' . escape($bare) . '>'
			: $_;
	} split /($token)/, $text;
}

# The words of a command line: what is to be replaced is in capitals.
sub markup_command {
	my ($text) = @_;
	return join '', map {
		/^[A-Z]+$/ ? "I<$_>" : /^[-a-z0-9_]+$/ ? "B<$_>" : escape($_);
	} split /([A-Z]+\b|[-a-z0-9_]+)/, $text;
}

# What a NAME line says: the first clause of a text.
sub summary {
	my ($text) = @_;
	$text =~ s/[.;:,](\s.*)?$//s;
	$text =~ tr/`//d;
	return escape($text =~ s/^([A-Z])(?=[a-z ])/\l$1/r);
}

# Paragraphs, lists ("- ") and indented text from blocks.
sub paragraphs {
	my ($format, @blocks) = @_;
	my ($out, $list) = ('', 0);

	for my $block (@blocks) {
		my $item = $block =~ s/^- //;
		$out .= "=over 2\n\n" if $item && !$list;
		$out .= "=back\n\n" if $list && !$item;
		$out .= $block =~ /^ {4}/ ? verbatim($block =~ s/^ {4}//gmr . "\n")
			: ($item ? "=item *\n\n" : '') . $format->($block) . "\n\n";
		$list = $item;
	}
	return $out . ($list ? "=back\n\n" : '');
}

# Terms with their text, both POD already: [[term...], text].
sub definitions {
	my (@list) = @_;
	my $out = "=over 4\n\n";

	for my $pair (@list) {
		$out .= "=item $_\n\n" for @{ $pair->[0] };
		$out .= "$pair->[1]\n\n" if $pair->[1] ne '';
	}
	return "$out=back\n\n";
}

sub verbatim {
	my ($code) = @_;
	$code =~ s/\t/    /g;
	return $code =~ s/^(?=.)/ /gmr . "\n";
}

# A prototype in lines that fit on a narrow terminal.
sub wrap_prototype {
	my ($prototype) = @_;
	my ($head, $parameters) = $prototype =~ /^(.*?\()(.*)$/;
	my ($line, $out) = ($head, '');
	my $indent = ' ' x (length $head > 30 ? 8 : length $head);

	for my $word (split /(?<=,) /, $parameters) {
		if (length("$line $word") > 66 && $line =~ /\S/) {
			$out .= $line =~ s/ +$//r . "\n";
			$line = $indent;
		}
		$line .= ($line =~ /[(\s]$/ ? '' : ' ') . $word;
	}
	return "$out$line;\n";
}

1;
