r"""Words next to a number that change its value, in the languages of ``announcements``.

A number is the answer only if it is the whole value: "4 mille" is 4000, "racine de 4" is 2, "4 bis 5" is a range. These
tables apply to labels of every language, because models mix languages.
"""

from __future__ import annotations

import re

#: A number, possibly with LaTeX or Markdown around it.
_NUMBER = r"[\s$\\({}]*[-−]?\.?\d"

#: Power of ten → words that multiply the number before them. "\w*" covers endings of cases and plurals.
_SCALES = {
    "10": "tens|Zehner|dizaines?|decenas?|dezenas?|decin[ae]|десят\\w+|puluh|十",
    "12": "dozens?|Dutzend|douzaines?|docenas?|dúzias?|dozzin[ae]|дюжин\\w*|lusin|düzine|dozijn|tuzin\\w*|dussin",
    "20": "scores?",
    "10^{2}": "hundreds?|Hunderte?|centaines?|cientos|centenas?|centinai[ao]|сот\\w*|сотн\\w*|honderd\\w*|hundra"
    "|hundrede"
    "|setek|setki|ratus|yüz|trăm|száz|sute?|sataa?|εκατοντάδες|百(?!分|貨)|백|सौ|শত|مئة|مائة|ร้อย",
    "10^{3}": "thousands?|k(?=[€$£])|Tausende?|Tsd\\.?|mille|mil|mila|milliers|migliaia|milhares|тысяч\\w*|тыс\\b\\.?"
    "|тисяч\\w*|тис\\b\\.?|duizend\\w*|tusen|tusind|tysiąc\\w*|tysięcy|tys\\b\\.?|tisíce?|tisíc|bin|ribu|nghìn|ngàn"
    "|ezer|mii"
    "|tuhatta?|χιλιάδες|אלף|אלפים|ألف|آلاف|هزار|हज़ार|हजार|হাজার|ہزار|พัน|千(?![克米瓦卡赫帕焦伏字])|천",
    "10^{4}": "万|萬|만(?!큼)|หมื่น",
    "10^{5}": "lakhs?|lacs?|लाख|লাখ|لاکھ|แสน",
    "10^{6}": "millions?|mln\\b\\.?|mn\\b|Mio\\b\\.?|Millionen|millón|millones|milhão|milhões|milione|milioni"
    "|миллион\\w*|млн\\b\\.?"
    "|мільйон\\w*|miljoen\\w*|miljon(?:er)?|million(?:en|er)|milion(?:y|i|a|ów|ů)?|juta|milyon|triệu|millió"
    "|milioane|miljoonaa?"
    "|εκατομμύρι\\w+|מיליון|مليون|ملايين|میلیون|ล้าน",
    "10^{7}": "crores?|करोड़|কোটি|کروڑ",
    "10^{8}": "亿|億|억",
    "10^{9}": "billions?|bn\\b|Milliarden?|Mrd\\b\\.?|milliards?|miliard\\w*|bilhões|миллиард\\w*|млрд\\b\\.?"
    "|мільярд\\w*|miljard\\w*"
    "|milyar|miliar|tỷ|tỉ|مليار|میلیارد|अरब",
    "10^{12}": "trillions?|兆|조(?!각)",
    "10^{15}": "quadrillions?",
}
_NAMED_SCALES = (rf"(?P<p{power.strip('{}').replace('^{', '_')}>{words})" for power, words in _SCALES.items())
_SCALE = re.compile(
    rf"^[\s}}$~]*(?:{'|'.join(_NAMED_SCALES)})"
    r"(?![A-Za-zÀ-ɏЀ-ӿ])(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip

#: Words that make the number after them negative. Some may also subtract it from a value before them.
_NEGATIVE = (
    r"negative|negativ[oaen]?|négati(?:f|ve)|отрицательн\w+|negatif|ujemn\w+|マイナス|마이너스|음수|负|負|零下"
    r"|سالب|منفی|ऋण|ติดลบ"
)
_MINUS = r"minus|menos|moins|meno|минус|мінус|min|eksi|âm|mínusz|miinus|μείον|מינוס|ناقص|माइनस"
_SIGN = re.compile(
    rf"(?<![\w-])(?:(?P<negative>{_NEGATIVE})|(?P<minus>{_MINUS}))(?:\s+(?:number|value))?\s*"
    rf"(?P<opening>(?:\$|\\\(|\\text\s*\{{)?)\s*(?=[\d.]|\\[dt]?frac|\\sqrt)",
    re.IGNORECASE,
)
#: Text before "minus" after which it is a sign and not a subtraction.
_BEFORE_SIGN = re.compile(
    r"(?:^|[:=(]|\b(?:is|are|was|be|equals?|à|igual a|égale? à|gleich|равн\w+|to|about|around|approximately|exactly"
    r"|es|est|è|é|ist|beträgt|είναι"
    r"|равен|равно"
    r"|равна|er|är|on|je|jest|este|là|adalah|temperature|value|temperatura|température|Temperatur))\s*$",
    re.IGNORECASE,
)

#: Nouns such as total and length, for which "X of 4" is 4.
_QUANTITY = re.compile(
    r"^(?:tot\w+|totaal|insgesamt|sum\w+|somm\w|soma|сумм\w+|valo?r\w*|valeur|wert|número|nombre|numero|anzahl"
    r"|preci?o|preço|prix"
    r"|preis|prezzo|co[us]t\w*|custo|área|area|aire|fläche|superfici\w*|longueur|longitud|comprimento|lunghezza"
    r"|länge|distan\w+"
    r"|vitesse|velocid\w+|velocità|geschwindigkeit|edad|âge|idade|età|alter|cantidad|quantit\w+|quantidade|betrag"
    r"|result\w+"
    r"|résultat|ergebnis|respuesta|réponse|resposta|risposta|antwort|moyenne|promedio|media|média|durchschnitt"
    r"|m[aá]xim\w+"
    r"|m[ií]nim\w+|volum\w+|periméte?r\w*|perímetro|périmètre|umfang|radi\w*|rayon|radio|raio|raggio|lad\w|lato"
    r"|côté|seite"
    r"|altura|hauteur|altezza|höhe|largeur|ancho|larghezza|breite|peso|poids|gewicht|temp\w*|tiempo|zeit|durée"
    r"|duración|ganancia"
    r"|profit\w*|gewinn|probabili\w+|wahrscheinlichkeit|ángulo|angle|winkel|masa|masse|massa|abstand|saldo|salario"
    r"|cerca|alrededor"
    r"|es|est|è|é|ist|son|sont|sind|sono|era|fue|sera|será|war|hay|a|il|y|всего)$",
    re.IGNORECASE,
)
_OF = frozenset(
    str.split("""
de du des del della dello di do da dos das von vom aus van uit ur av af z ze из от od dari của
""")
)
#: Words right before a number that apply an operation to it, or compare with it.
_OPERATORS = re.compile(
    r"(?:根号|根號|平方根|루트|√|квадрат\w*|куб\w*|кор(?:ень|ня)|удвоенн\w+|числа|дважды|трижды|twice|zweimal"
    r"|dreimal|viermal|mal"
    r"|fois|veces|vezes|volte|keer|ganger|gånger|kali|kwadrat|pierwiastek|akar|căn|mod|módulo|modulo|log|sinus"
    r"|cosinus|的|の"
    r"|의|除以|乘以|加|减|減|乘|plus|por|durch|factorielle|fakultät|karekök)\s*$",
    re.IGNORECASE,
)
_COMPARES = re.compile(
    r"(?:\b(?:wie|als|que|чем|than|mindestens|höchstens|al menos|como mínimo|como máximo|a lo sumo|au moins|au plus"
    r"|pelo menos"
    r"|no máximo|almeno|al massimo|minstens|hoogstens|не менее|не более|больше|меньше|более|менее|over|sobre|unter"
    r"|über)"
    r"|至少|至多|大于|小于|大於|小於|超过|超過|不到|少于|多于|以上の|최소|최대)\s*$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"\b(?:dal|dalla|zwischen|entre|tra|fra|между|між|od|tussen|mellan|mellem|między|antara|mezi|intre|între)\b"
    r"|介于|介於"
    r"|giữa|بين"
    r"|\b(?:von|de|da|от|van|från|fra|od|dari|từ|del|desde)\s*$",
    re.IGNORECASE,
)

_POWERS = (
    r"hoch\b|zum (?:Quadrat|Kubik)|zur \w+ Potenz|im Quadrat|quadriert|au (?:carré|cube)|(?:à la )?puissance"
    r"|élevée? (?:à|au)"
    r"|al (?:cuadrado"
    r"|cubo|quadrato)|elevad[oa]|elevat[oa]|alla (?:seconda|terza|quarta)|ao (?:quadrado|cubo)|в (?:квадрате|кубе"
    r"|степени)|у квадраті"
    r"|kwadraat|(?:do )?kwadrat\w*|do potęgi|i (?:kvadrat|kubik)|kvadrat|pangkat|kuadrat|kare(?:si|kökü)"
    r"|bình phương|mũ"
    r"|Fakultät|factorielle|factorial\b|факториал|(?:左右|くらい|ほど|程度|정도)?(?:的|の|의)|제곱|分之|분의|分の|次方|乗"
    r"|平方(?![米公厘分千英メキセ])"
    r"|立方(?![米公厘分千英メキセ])|阶乘|階乗|倍の"
    r"|raised\b|(?:th|st|nd|rd)\s+(?:root|power)"
)
_FRACTIONS = (
    r"Drittel|Viertel|Fünftel|Sechstel|Siebtel|Achtel|Neuntel|Zehntel|tiers|cinquièmes|tercios|quintos|sextos|terzi"
    r"|terços"
    r"|(?:six|seven|eigh|nin|eleven|twelf)ths"
)
_REMAINDERS = (
    r"\(?(?:with |mit |avec |con |com |с )?(?:an? |un |el |um |einem )?(?:remainder|reste?|resto|остат\w+|余り?|餘"
    r"|あまり|나머지|reszt\w+|kalan"
    rf"|dư|sisa|r\.?)(?:\s+(?:of|is|de|di|von))?[\s:=]*{_NUMBER}"
)
_LEFT_OVER = rf"(?:with|and){_NUMBER}\d*\s+(?:left|over|remaining)\b|(?:plus|and) (?:an? )?(?:remainder|rest)\b|rem\b"
_OPERATIONS = (
    r"(?:mal|fois|veces|vezes|volte|раза?|razy|kali|kez|lần|ganger|gånger|keer|por|durch|geteilt durch"
    r"|divisé\w* par|divid\w+ por"
    r"|diviso(?: per)?|más|mais|più|weniger|menos|meno|moins|плюс|минус|加|减|減|乘以?|除以?|times|divided by)\s*"
    rf"(?:{_NUMBER}|(?:so|wie|als|que|di|de|than)\b|[b-z]\b)"
)
_UNIT = (
    r"(?:(?:cm|mm|dm|km|m|in|inch(?:es)?|ft|feet|foot|yards?|yd|met(?:er|re)s?|centimet(?:er|re)s|miles?|units?)\W+)"
)
#: "4 x 5" and "4 by 5", except powers of ten. Other product signs only count after a unit of length.
_DIMENSIONS = rf"(?:{_UNIT}?(?:x|by)\b(?!\s*10\s*(?:\^|\*\*))|{_UNIT}(?:×|\\times|\\cdot)(?![A-Za-z])){_NUMBER}"
_TIME_UNITS = r"(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?|[ap]\.?m)\b"
_RATIOS = (
    rf"(?:Prozent|pour cent|por ciento|por cento|per cento|процент\w*|\\?%)\s+(?:von|de|di|du|от|of){_NUMBER}|"
    r"\(?in (?:binary|octal|hex|hexadecimal|ternary|decimal places)\b|(?:short|shy) of\b"
    rf"|\(?in (?:tens|hundreds|thousands|millions|billions|lakhs|crores)\b"
    rf"|\(?in\s*(?:every\s+)?{_NUMBER}\d{{0,2}}\b(?!\s*{_TIME_UNITS})|out\s+of\s+(?:an? "
    rf"|the )?(?:total of )?(?:every )?{_NUMBER}|(?:for"
    rf"|per)\s+every{_NUMBER}|per{_NUMBER}"
    rf"|\(?(?:written\s+)?(?:in\s+)?base[\s-]*(?!10\b|ten\b)[\s$]*(?:\d|two|three|four|five|six|seven|eight|nine"
    rf"|twelve|sixteen)"
    r"|(?:[^\W\d]+\W+){0,2}?(?:below|under|sous|bajo|sotto|unter|ниже) (?:zero|zéro|cero|null|нуля|freezing)"
)
_CHANGED = re.compile(
    rf"^[\s}}$~,;]*(?:{_POWERS}|(?:{_FRACTIONS})\b|{_REMAINDERS}|{_LEFT_OVER}|{_OPERATIONS}|{_DIMENSIONS}|{_RATIOS})",
    re.IGNORECASE,
)
_RANGE = re.compile(
    rf"^[\s)}}$]*(?:bis(?: zu)?|à|al|ao|hasta|até|fino a|jusqu['’]à|a|tot|til|till|do|до|至|到|から|~|～|〜|에서"
    rf"|부터|hingga|sampai|đến"
    rf"|إلى)(?![A-Za-zЀ-ӿ]){_NUMBER}",
    re.IGNORECASE,
)
_OR_MORE = re.compile(
    r"^[\s)}$]*(?:以上|以下|未满|未満|以内|より(?:大|小|多|少|も)|이상|이하|초과|미만|(?:o|y|ou|oder|и|или|e|eller"
    r"|of|lub) (?:más|mayor|menos|plus|mais"
    r"|mehr|weniger|более|больше|менее|меньше|più|meno|mer|meer|więcej))",
    re.IGNORECASE,
)
_JOINED = re.compile(
    rf"^[\s)}}$]*(?:und|et|y|e|и|en|och|og|dan|và|ve|和|与|與|跟|と|와|과|و|और)(?![A-Za-zЀ-ӿ]){_NUMBER}", re.IGNORECASE
)
_OTHERWISE = re.compile(
    rf"^[\s)}}$]*(?:oder|ou|o|или|或者?|または|또는|veya|hoặc|atau|eller|of|lub|nebo|або|أو"
    rf"|या)(?![A-Za-zЀ-ӿ]){_NUMBER}",
    re.IGNORECASE,
)


def scale_after(tail: str) -> tuple[str, str, bool] | None:
    """Parse a scale such as "million" at the start of ``tail``; None without a scale.

    Returns the factor, the word, and whether the number continues after the word.

    >>> scale_after(" lakh"), scale_after("万"), scale_after("千克"), scale_after("万5千")
    (('10^{5}', 'lakh', False), ('10^{4}', '万', False), None, ('10^{4}', '万', True))
    """
    match = _SCALE.match(tail)
    if match is None:
        return None
    name = str(next(name for name, words in match.groupdict().items() if words is not None and name != "rest"))
    base, _, power = name.removeprefix("p").partition("_")
    compound = re.match(rf"{_NUMBER}", match["rest"]) is not None or _SCALE.match(match["rest"]) is not None
    return (f"{base}^{{{power}}}" if power else base), match[name], compound


def with_sign(clause: str) -> str:
    """Replace a word for "minus" before the first number by a sign.

    >>> [with_sign(text) for text in ("negative 4", "minus $4$", "负5", "8 minus 3", "al menos 5")]
    ['-4', '$-4$', '-5', '8 minus 3', 'al menos 5']
    """
    match = _SIGN.search(clause)
    if match is None or any(map(str.isdigit, clause[: match.start()])):
        return clause
    before = clause[: match.start()]
    if match["minus"] is not None and _BEFORE_SIGN.search(before) is None:
        return clause
    return f"{before}{match['opening']}-{clause[match.end() :]}"


def changes_before(lead: str) -> str:
    """Return how the words before a number change it: "part", "compared", "range", or "".

    >>> changes_before("racine de"), changes_before("un total de"), changes_before("zwischen"), changes_before("quedan")
    ('part', '', 'range', '')
    """
    lead = lead.rstrip(" $\\({")
    words = re.findall(r"[^\W\d_]+", lead)
    if not words:
        return ""
    if _COMPARES.search(lead) is not None:
        return "compared"
    if _OPERATORS.search(lead) is not None:
        return "part"
    if words[-1].lower() in _OF and len(words) > 1 and _QUANTITY.match(words[-2]) is None:
        return "part"
    return "range" if _BETWEEN.search(lead) is not None and words[-1].lower() not in _OF else ""


def changes_after(tail: str) -> str:
    """Return how the words after a number change it.

    The result is "part", "range", "compared", "several", "one of several" or "".

    >>> [changes_after(text) for text in (" hoch 2", "至5", " und 5", " oder 5", " Äpfel")]
    ['part', 'range', 'several', 'one of several', '']
    """
    if _CHANGED.match(tail) is not None:
        return "part"
    if _RANGE.match(tail) is not None:
        return "range"
    if _OR_MORE.match(tail) is not None:
        return "compared"
    if _OTHERWISE.match(tail) is not None:
        return "one of several"
    return "several" if _JOINED.match(tail) is not None else ""
