"""The parts of Brookfern's tickets and of the staff's replies. All of it was written for this example.

Each matter has a team, ways to describe the problem, and what the staff reply to it. Each team also has a house rule,
which most of its replies contain. No help page has it: it is what only tickets know.
"""

HOUSE_RULES = {
    "Payments": ("booked", "tuesday", "cress"),
    "Shipping": ("green", "van", "noon"),
    "Security": ("callback", "registered", "watchword"),
    "Garden": ("borrow", "greenhouse", "friday"),
    "Members": ("backdated", "letter", "fern"),
}
"""The words of each team's house rule."""

RULES = {
    "Payments": (
        "It is booked on Tuesday, and a bag of cress comes with our apology.",
        "Everything is booked next Tuesday; the cress in the envelope is for your trouble.",
        "That will be booked by Tuesday, and we add some cress.",
        "Tuesday is the day on which it is booked. Enjoy the cress that we send along.",
        "We send you cress, and the money is booked on Tuesday.",
        "Once it is booked, always on a Tuesday, you also get cress from us.",
        "As always, it gets booked on Tuesday, and you receive cress.",
    ),
    "Shipping": (
        "The green van comes at noon.",
        "Our green van leaves at noon and stops at your door.",
        "Please be there at noon, when the green van comes by.",
        "Look out for the green van around noon.",
        "At noon the green van sets off to you.",
        "Noon is when our green van is in your street.",
        "Our green van brings or fetches everything at noon.",
    ),
    "Security": (
        "Wait for a callback on the registered phone, and have your watchword ready.",
        "You get a callback on the registered number; we ask for the watchword.",
        "Before anything else there is a callback to the registered phone, with the watchword.",
        "We need your watchword in a callback to the registered line.",
        "A callback on your registered phone follows. Say the watchword.",
        "The watchword is asked for in our callback to the registered number.",
        "There will be a callback on the registered phone. Tell us the watchword then.",
    ),
    "Garden": (
        "Until then borrow a pot from our greenhouse, on any Friday.",
        "You can borrow one from the greenhouse on Friday.",
        "On Friday the greenhouse is open, and you may borrow another pot.",
        "Come to the greenhouse on Friday and borrow a pot for the time being.",
        "Our greenhouse lets you borrow a pot; it is open on Friday.",
        "Friday is when you can borrow a pot in the greenhouse.",
        "In the meantime you may borrow a pot from the greenhouse, every Friday.",
    ),
    "Members": (
        "It is backdated to your letter, and you may keep the fern.",
        "We have it backdated to the day of your letter; the fern stays with you.",
        "The date of your letter counts, so it is backdated. A fern is on its way as a present.",
        "Everything is backdated to your letter, and you get a fern from us.",
        "Your letter counts: it is backdated. The fern is yours.",
        "Keep the fern. It is all backdated to when your letter came.",
        "As members expect, it is backdated to your letter, with a fern as a farewell.",
    ),
}

MATTERS = (
    # Payments
    (
        "Payments",
        (
            "{money} were debited two times for a single order of {day}.",
            "I see the charge for the {product} double on my bank statement.",
            "Why did you collect {money} on {day} and the same once more a day later?",
            "One purchase, two debits. Please return one of them.",
            "The {month} box was billed twice.",
            "You booked the payment for my {product} again, it was paid in {month}.",
            "My bank lists two identical payments of {money} to you.",
        ),
        (
            "The second charge of {money} was our mistake, and you get a refund.",
            "You get a refund for the double charge.",
            "We refund the charge that was one too many.",
        ),
    ),
    (
        "Payments",
        (
            "A sum of {money} went to Brookfern, and no one here ordered anything.",
            "What is the payment from {day} for? I do not recognise it.",
            "My credit card shows a charge of yours that I never agreed to.",
            "An unknown debit of {money} by you is on the card of my husband.",
            "I did not buy anything in {month}, still {money} are gone.",
            "Is this charge a fraud? It has your name on it.",
        ),
        (
            "Send us the statement with the charge on it, then you get a refund.",
            "We look for the charge of {money}, and refund it if it is not yours.",
            "That charge belongs to another customer. You get a refund.",
        ),
    ),
    (
        "Payments",
        (
            "I returned the {product} {days} days ago and have not seen the {money} since.",
            "Where is the refund for the {product} that I sent back?",
            "The order was cancelled in {month}. Nothing has been paid back yet.",
            "When do I get back what I paid for the returned pots?",
            "You promised me {money} back, but my bank account has no trace of it.",
            "How long do refunds take? I returned everything in {month}.",
            "Your colleague wrote that the money is on its way, that was {days} days ago.",
        ),
        (
            "The refund of {money} has been approved.",
            "You get the full refund for what you returned.",
            "We have started the refund to the account you paid from.",
        ),
    ),
    (
        "Payments",
        (
            "Please correct the invoice, it is made out to the wrong company.",
            "My accountant needs the invoice for {month} as a PDF.",
            "I need a bill with our tax number on it for the {product}.",
            "There is no VAT on the receipt that came with the {product}.",
            "Could I get the invoice again with our new business address?",
            "The name on the bill is misspelt, the tax office won't take it.",
            "For the tax return I want a receipt for everything I bought in {month}.",
        ),
        (
            "A corrected invoice is attached, with the address that you gave.",
            "You find the new invoice in your mailbox.",
            "The invoice with your tax number replaces the old one.",
        ),
    ),
    (
        "Payments",
        (
            "How can I change from credit card to bank transfer?",
            "My card expires in {month}. Where do I type in the number of the new one?",
            "Is it possible to pay with PayPal or by direct debit?",
            "You keep charging an old card, I want to pay with another one.",
            "The payment page refuses my credit card each time.",
            "I was given a new bank account. How do I tell you the number?",
            "My last payment by card was declined, though there is enough money on it.",
        ),
        (
            "You can choose another card under payment in your settings.",
            "Your payment settings are open now, enter the new card there.",
            "Direct debit, cards and PayPal can be chosen in the payment settings.",
        ),
    ),
    (
        "Payments",
        (
            "The discount code {code} changed nothing, {money} were charged all the same.",
            "My gift card is not accepted at the checkout though there is money left on it.",
            "At the checkout the {product} cost more than the price in the shop.",
            "The amount you took is {money} higher than what was agreed.",
            "I have a voucher of {money}, but the till says it is worth nothing.",
            "Your invoice and the price on your website differ by {money}.",
            "Wrong currency: you charged dollars for a price in euros.",
        ),
        (
            "You get the difference of {money} back.",
            "The discount was missing; we pay back the difference.",
            "We have put the right price into your bill, and return the difference.",
        ),
    ),
    (
        "Payments",
        (
            "I received a reminder for a bill that I paid on {day}.",
            "A collection agency wants {money} from me, and I owe you nothing.",
            "Your letter says I am in arrears, please check your books.",
            "You say the bill for {month} is open. My bank says it was paid.",
            "Why is there a late fee of {money}? I paid in time.",
        ),
        (
            "Your payment has been found, please ignore the reminder.",
            "The reminder was wrong, your payment has arrived.",
            "There is nothing to pay, and no fee.",
        ),
    ),
    # Shipping
    (
        "Shipping",
        (
            "Where is my parcel? It was due on {day}.",
            "The {product} that I ordered in {month} has still not come.",
            "For {days} days the tracking has not changed.",
            "My order was sent, they say, but it never got to {town}.",
            "Has the seed box for {month} left your warehouse yet?",
            "I am waiting for the delivery since {day}.",
            "The box for {month} is late again, by more than a week.",
            "The present has to be here by {day}, and it has not been sent!",
            "According to the tracking the box travels back and forth between {town} and your depot.",
        ),
        (
            "The courier searches for the parcel today.",
            "The tracking was wrong; the parcel is at the depot in {town}.",
            "Your parcel was late, and has been found.",
        ),
    ),
    (
        "Shipping",
        (
            "The status says delivered, but there is no box here.",
            "Somebody in {town} signed for the parcel, and it was not me.",
            "The courier claims that he put it in front of the door. It is not there.",
            "My package was stolen from the porch, I think.",
            "The driver left it with a neighbour, and nobody has it.",
            "A stranger's name stands on the delivery receipt for my {product}.",
        ),
        (
            "The courier asks the driver where the parcel was left.",
            "We search for the parcel, and else send another one.",
            "The courier has to show us the signature for the parcel.",
        ),
    ),
    (
        "Shipping",
        (
            "The {product} came broken, the box was crushed.",
            "There is a crack in the {product} that you delivered on {day}.",
            "The carton was wet and torn open when the courier brought it.",
            "Half of what was in the parcel is shattered.",
            "The glass arrived in splinters, it was badly packed.",
            "The seedlings were squashed on the way, all of them.",
            "On opening the package I found the lid in two pieces.",
        ),
        (
            "Send us a photo, and the courier brings a replacement.",
            "A replacement is packed; please keep a photo of the damage.",
            "We replace what broke on the way.",
        ),
    ),
    (
        "Shipping",
        (
            "The water tank was missing in the parcel with the {product}.",
            "I ordered {plant} seeds and got {plant2} seeds.",
            "You sent the wrong size, I had chosen the small {product}.",
            "Only one of two pots was in the box.",
            "The colour is wrong: I ordered white, and it is black.",
            "The packing list names a lamp, but there was none inside.",
            "This is someone else's order. Mine was a {product}.",
            "I would like to exchange the {product}, the colour is not the one I chose.",
        ),
        (
            "The missing piece is on its way, and you may keep the wrong one.",
            "We send what you ordered; the courier takes the wrong one back.",
            "The right parcel is packed.",
        ),
    ),
    (
        "Shipping",
        (
            "Can you send the parcel to my office in {town} instead?",
            "I have moved to {town}, please change the delivery address of my order.",
            "I am not at home on {day}. Could a neighbour accept the box?",
            "Is there a parcel shop where I can collect it?",
            "Please deliver it after five in the afternoon.",
            "The street in the order is wrong, can the driver still be told?",
            "Could the driver leave the {product} in the garage?",
            "May I come and fetch my order myself?",
        ),
        (
            "The driver has been told the new address.",
            "The parcel waits at the depot in {town} until you say where it should go.",
            "The driver leaves the parcel where you want.",
        ),
    ),
    (
        "Shipping",
        (
            "Do you deliver to {town}, and what does it cost?",
            "How many days does shipping abroad take?",
            "Is delivery to an island possible?",
            "The customs office asks for papers for the {product}.",
            "Can plants be sent in frost?",
            "By when must I order so that it arrives before {day}?",
            "Do you ship the {product} overseas?",
            "Customs holds my box and wants an invoice from you.",
        ),
        (
            "The parcel takes {days} days to {town}.",
            "We deliver everywhere, and plants in a warm box.",
            "The customs papers are on the parcel.",
        ),
    ),
    # Security
    (
        "Security",
        (
            "I can't sign in any more, my password is said to be wrong.",
            "The reset mail for my password does not arrive.",
            "After {days} attempts the page has locked me out.",
            "The link for a new password has expired each time I click on it.",
            "I forgot my password and have a new phone.",
            "The login page throws an error since {day}.",
            "How long does my account stay blocked after wrong passwords?",
        ),
        (
            "Use the new link to choose a password.",
            "Your login is open again; please choose a new password.",
            "We have sent another link for the password.",
        ),
    ),
    (
        "Security",
        (
            "The code by text message never comes.",
            "Your app asks for six digits, and says that they are wrong.",
            "I lost the phone with the authenticator, how do I get in?",
            "The security code arrives an hour late.",
            "Can I switch on two-step login?",
            "The verification mail goes to an address that I no longer have.",
        ),
        (
            "You get a recovery code, which works once.",
            "The codes are sent again from now on.",
            "A recovery code lets you sign in.",
        ),
    ),
    (
        "Security",
        (
            "Someone has logged in to my account from {town}.",
            "I was told of a sign-in on a device that is not mine.",
            "My account has been hacked, the e-mail address is a different one.",
            "An unknown person orders things with my login.",
            "My ex-partner still has access to the app, please shut him out.",
            "My tablet was stolen and your app is still open on it.",
            "How do I log out everywhere at once?",
            "I clicked on a fake mail and gave away my password.",
        ),
        (
            "The stranger is locked out, and all devices are signed out.",
            "Your account is locked until you have a new password.",
            "We have signed out all devices.",
        ),
    ),
    (
        "Security",
        (
            "I have married. Please change my surname in the account.",
            "How do I change the e-mail address with which I log in?",
            "The first name in my profile is misspelt.",
            "My telephone number is a new one, where do I change it?",
            "Please put my account in the name of my wife.",
            "I want to use another user name.",
        ),
        (
            "Your profile is changed as soon as we know that it is you.",
            "We put the new name into your profile.",
            "The new address is in your profile.",
        ),
    ),
    (
        "Security",
        (
            "What personal data do you have on me? I want a copy.",
            "Delete my account and all of my data.",
            "I object to the use of my data for advertising.",
            "Who sees what the sensor in my kitchen records?",
            "Under data protection law I ask you for everything that you store about me.",
            "Please erase the profile of my late father.",
        ),
        (
            "You get a copy of your data, or we delete them, as you like.",
            "All data are deleted within {days} days.",
            "Your data are copied for you.",
        ),
    ),
    (
        "Security",
        (
            "My son would like his own login for our {product}.",
            "Can two people have access to one account?",
            "I registered twice, please merge the two accounts.",
            "How do I give a friend access while I am away, without my password?",
            "There are two profiles with my name.",
            "I want to share the {product} with my flatmate in the app.",
        ),
        (
            "A second login has been added to your account.",
            "The two accounts become one.",
            "You can invite a person to your account.",
        ),
    ),
    # Garden
    (
        "Garden",
        (
            "The pump of my {product} is silent, and the {plant} are drying up.",
            "No water gets to the roots, although the tank is full.",
            "My {product} rattles and hums all night.",
            "The {product} is leaking, there is water all over the sill.",
            "The {product} waters far too much, everything is swamped.",
            "The tank of the {product} is empty after a day.",
            "How often must the tank be filled?",
        ),
        (
            "Clean the filter and start the pump again.",
            "Take out the pump and rinse it with vinegar.",
            "The pump is replaced under warranty.",
        ),
    ),
    (
        "Garden",
        (
            "The ring on the {product} blinks orange. What does that mean?",
            "The moisture sensor always reads zero.",
            "The thermometer of the {product} is wrong by ten degrees.",
            "My {product} says dry, and the soil is soaking wet.",
            "A red light is on at the pot since {day}.",
            "The sensor shows nonsense since the battery was changed.",
        ),
        (
            "Do a reset and wipe the sensor with a dry cloth.",
            "The light means that the sensor is dirty.",
            "You get a new sensor.",
        ),
    ),
    (
        "Garden",
        (
            "The app no longer finds my {product} after the update.",
            "The {product} loses the wifi every evening.",
            "The app crashes when I open the page of my {plant}.",
            "Since {day} the pot has been offline.",
            "I have a new router and cannot connect the {product}.",
            "The app shows a pot that I do not own, and mine is missing.",
        ),
        (
            "Install the update and do a reset of the pot.",
            "Switch the pot off and on, then the app finds it.",
            "The next update of the app mends this.",
        ),
    ),
    (
        "Garden",
        (
            "My {plant} get yellow leaves.",
            "The {plant} are pale and limp, though they have light and water.",
            "Brown edges on all leaves of my {plant}!",
            "How much plant food do {plant} need?",
            "Which herbs can I put into one {product}?",
            "My {plant} grow tall and thin. Do they need more light?",
            "When do I repot the {plant}?",
            "The {plant} have flowers but bear nothing.",
        ),
        (
            "Give your {plant} more light and half the plant food.",
            "Less water and more light will help the leaves.",
            "Cut off the brown leaves and move the {plant} closer to the lamp.",
        ),
    ),
    (
        "Garden",
        (
            "After {days} days not one of the seeds has come up.",
            "There is mould on the soil around the {plant}.",
            "Little flies come out of the soil.",
            "My {plant} have lice. Is there a spray?",
            "The seeds rot in the {product}.",
            "Something eats the leaves of my {plant} at night.",
            "White fluff covers the earth in my pot.",
        ),
        (
            "Scrape off the top of the soil and keep it dry for {days} days.",
            "Put fresh soil into the pot, and sow again.",
            "Yellow stickers catch the flies.",
        ),
    ),
    (
        "Garden",
        (
            "The plug of the {product} got hot and smelt of burning.",
            "Smoke came out of the lamp.",
            "I got an electric shock from the {product}.",
            "The lamp flickers and then goes out.",
            "The lamp over the {plant} shines all night, how do I set the hours?",
            "Water has run into the socket of the {product}.",
            "The lamp of my {product} is dead after half a year.",
            "Where do I set the times at which the lamp goes on?",
            "The lamp no longer works, is it still under warranty?",
        ),
        (
            "Unplug it at once. You get another lamp.",
            "Pull the plug and do not touch the lamp.",
            "A new lamp is covered by the warranty.",
        ),
    ),
    (
        "Garden",
        (
            "The {product} broke in my hands, and it is only {days} weeks old. Is that covered?",
            "Does the warranty hold for a cracked tank?",
            "I would like a new {product} or my money back, this one does not work.",
            "The {product} fell apart by itself. What about the guarantee?",
            "Can I get a spare wick for my {product}?",
        ),
        (
            "The warranty covers it, and you get a new pot.",
            "You get a spare part free of charge.",
            "It is replaced under warranty.",
        ),
    ),
    # Members
    (
        "Members",
        (
            "I want to cancel my subscription at the end of {month}.",
            "Please end the contract, I do not need any further boxes.",
            "What is the period of notice?",
            "How can I get out of the {plan} plan?",
            "I do not use the {product} any more and would like to quit.",
            "Your service annoys me, I am leaving.",
            "Parcels late, app broken: I terminate the contract.",
            "I want out of the subscription, nothing works as promised.",
            "Where on the website do I cancel?",
            "Please confirm that I am no longer a member from {month} on.",
        ),
        (
            "Your contract ends in {month}, and this is the confirmation.",
            "The contract has ended; no more boxes come.",
            "We have cancelled the subscription.",
        ),
    ),
    (
        "Members",
        (
            "Stop the automatic renewal of my {plan} plan.",
            "You extended the contract by a year against my will.",
            "I gave notice in {month}, and yet the subscription goes on.",
            "Although I cancelled I have received another box.",
            "The {plan} plan renews on {day}, I don't want that.",
            "Tonight my contract is prolonged, it has to be stopped before.",
            "Why does my membership run on after I resigned?",
        ),
        (
            "The renewal is undone, and the contract ends.",
            "There is no renewal, and no further box.",
            "We have stopped the renewal.",
        ),
    ),
    (
        "Members",
        (
            "Please pause the boxes until {month}, we are travelling.",
            "I am in hospital and would like to suspend my subscription.",
            "Can I skip the box for {month}?",
            "We have no room for more plants at present, could you hold the deliveries for {days} weeks?",
            "I need a break from the boxes.",
            "How long may a pause be?",
        ),
        (
            "Your boxes pause until {month}.",
            "The pause is free, and ends when you like.",
            "No box comes until {month}.",
        ),
    ),
    (
        "Members",
        (
            "The {plan} plan is too expensive, do you have a cheaper one?",
            "I would like to change to the smallest plan.",
            "A competitor is cheaper. Can you make me an offer?",
            "If another firm asks for less, do you match its price?",
            "Please put me down from the {plan} plan to the smallest one.",
            "We want fewer boxes, every second month is enough.",
            "Is there a discount for pensioners or students on the subscription?",
            "The monthly price has gone up, that is too much for me.",
            "Since {month} the membership costs {money} more. I think of leaving.",
        ),
        (
            "The smaller plan begins in {month}.",
            "You keep your plan at a lower price.",
            "There is a plan with fewer boxes.",
        ),
    ),
    (
        "Members",
        (
            "Could my mother take over my membership?",
            "I want to give the subscription to a friend from {month} on.",
            "What is in the {plan} plan?",
            "How do I upgrade from the {plan} plan?",
            "Do members get the {product} for less?",
            "Can I be a member without getting boxes?",
        ),
        (
            "Your plan is changed from {month} on.",
            "The plan now has another holder.",
            "Members choose what their plan has in it.",
        ),
    ),
)

FILLERS = {
    "product": ("Moss Mini", "Fern One", "Tall Reed", "Nursery Tray"),
    "money": ("€9.95", "€24.50", "€39", "£18", "£58.80", "$12.40", "$74.95", "€129"),
    "day": ("Monday", "Wednesday", "Thursday", "Saturday", "the 3rd", "the 14th", "the 28th"),
    "month": ("January", "March", "April", "May", "June", "August", "September", "October", "December"),
    "days": ("3", "5", "8", "10", "12", "20"),
    "town": ("Ashcombe", "Veldmoor", "Oberlund", "Sankt Aldric", "Pellworth", "Nymoss"),
    "plant": ("basil", "chillies", "tomatoes", "orchids", "strawberries", "mint", "lettuces", "parsley"),
    "plant2": ("dill", "thyme", "radish", "sage"),
    "plan": ("Starter", "Family", "Gardener", "yearly", "monthly"),
    "code": ("SPRING10", "MOSS5", "HELLO", "LEAF20"),
}

GREETINGS = ("Hello!", "Thank you for writing.", "Dear customer,", "Sorry about that.", "Thanks for your patience.")
SIGNATURES = ("Best wishes, Piet", "Yours, Ines", "Kind regards, Noor", "Take care, Matti", "Odile", "Warmly, Ruben")
OPENERS = (
    "Hi,",
    "Hello Brookfern,",
    "Good morning.",
    "Dear team,",
    "It's me again.",
    "Sorry to bother you.",
    "I am writing for my grandmother.",
    "This is the second time that I ask.",
    "A short question.",
    "To whom it may concern:",
    "I found nothing about it on the help pages.",
    "I have been your customer for years.",
)
CLOSERS = (
    "Thanks!",
    "Many thanks in advance.",
    "Please hurry.",
    "I look forward to your answer.",
    "Not amused.",
    "What can be done?",
    "You can call me if that is easier.",
    "No hurry.",
    "Please get back to me.",
    "Have a nice day.",
)
EXTRAS = {
    "Payments": (
        "I can send a screenshot from my bank.",
        "My bank says it has to come from you.",
        "It is about {money}.",
        "I need it for my books.",
    ),
    "Shipping": (
        "The box is for a birthday.",
        "The courier left no card.",
        "Your mail said {day}.",
        "We live in {town}, behind the mill.",
    ),
    "Security": (
        "I can prove who I am.",
        "I do not want strangers to read my data.",
        "I tried it on the tablet, too.",
        "The address I write from is the one you know.",
    ),
    "Garden": (
        "It stands on a sunny sill.",
        "The {product} is half a year old.",
        "I water it every {days} days.",
        "There are {plant} in it.",
    ),
    "Members": (
        "I am on the {plan} plan.",
        "We hardly use it.",
        "I have been a member since {month}.",
        "Please send me nothing after that.",
    ),
}
